import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from aaren.errors import ConfigError, DataError, ShapeError
from aaren.estimators import AarenClassifier
from aaren.presets import make_run
from aaren.train.run import train

SMALL: dict[str, Any] = {
    "width": 16,
    "num_layers": 1,
    "head": "flattened",
    "epochs": 10,
    "learning_rate": 1e-2,
    "random_state": 0,
    "threads": 1,
}


def small(**options: Any) -> AarenClassifier:
    return AarenClassifier(**{**SMALL, **options})


def waves(cases: int = 40, *, channels: int = 2, steps: int = 20, seed: int = 0) -> tuple[Any, Any]:
    """Slow and fast waves around 50, (cases, channels, steps), and their names."""
    random = np.random.default_rng(seed)
    speed = np.where(np.arange(cases) % 2, 1.0, 0.3)[:, None, None]
    start = random.uniform(0.0, 6.0, (cases, channels, 1))
    names = np.where(np.arange(cases) % 2, "fast", "slow")
    return 50.0 + 9.0 * np.sin(speed * np.arange(steps) + start), names


def ragged(cases: int = 40, *, seed: int = 0) -> tuple[list[Any], Any]:
    panel, names = waves(cases, seed=seed)
    return [case[:, : 12 + place % 9] for place, case in enumerate(panel)], names


@pytest.fixture(scope="module")
def fitted() -> AarenClassifier:
    return small(epochs=15).fit(*waves())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # of an array interface not in use
def test_scikit_learn_accepts_it() -> None:
    check_estimator(small(random_state=None, head="pooled"))


@pytest.mark.parametrize("embedding", ["causal", "circular"])
@pytest.mark.parametrize("head", ["flattened", "pooled"])
@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
def test_panels_of_series(embedding: str, head: str, mixer: str) -> None:
    model = small(embedding=embedding, head=head, mixer=mixer, epochs=15).fit(*waves())
    panel, names = waves(seed=1)
    assert model.score(panel, names) >= 0.9
    probabilities = model.predict_proba(panel)
    assert probabilities.shape == (40, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert model.predict(panel).tolist() == model.classes_[probabilities.argmax(axis=1)].tolist()
    assert model.classes_.tolist() == ["fast", "slow"]


def test_a_table_is_a_panel_of_one_channel() -> None:
    panel, names = waves(channels=1)
    as_panel, as_table = small().fit(panel, names), small().fit(panel[:, 0], names)
    np.testing.assert_array_equal(as_panel.predict_proba(panel), as_table.predict_proba(panel[:, 0]))
    np.testing.assert_array_equal(as_panel.predict_proba(panel[:, 0]), as_table.predict_proba(panel))
    assert as_table.n_features_in_ == 20
    assert not hasattr(as_panel, "n_features_in_")
    assert not hasattr(as_table.fit(panel, names), "n_features_in_")


def test_lists_of_unequal_series() -> None:
    cases, names = ragged()
    model = small(epochs=15).fit(cases, names)
    others, names = ragged(seed=1)
    assert model.score(others, names) >= 0.9
    assert model.length_ == 20
    holder = np.empty(len(others), dtype=object)
    holder[:] = others
    np.testing.assert_array_equal(model.predict_proba(holder), model.predict_proba(others))
    alone = np.concatenate([model.predict_proba([case]) for case in others])
    np.testing.assert_allclose(alone, model.predict_proba(others), atol=1e-12)
    flat = [case[0] for case in cases]
    assert small().fit(flat, names).predict([row.tolist() for row in flat]).shape == (40,)


def collections_of(series: list[Any]) -> dict[str, Any]:
    """The same series of one channel in every form that is no table."""
    import pandas

    holder = np.empty(len(series), dtype=object)
    holder[:] = series
    return {
        "list": series,
        "tuple": tuple(series),
        "lists": [item.tolist() for item in series],
        "object array": holder,
        "pandas series": pandas.Series(series),
        "nested frame": pandas.DataFrame({"wave": [pandas.Series(item) for item in series]}),
    }


@pytest.mark.parametrize("is_equal", [True, False])
def test_series_of_one_channel_in_every_form(is_equal: bool) -> None:
    pytest.importorskip("pandas")
    panel, names = waves(8, channels=1)
    series = [case[0, : 20 if is_equal else 20 - place] for place, case in enumerate(panel)]
    model = small(head="pooled", epochs=1).fit([item[np.newaxis] for item in series], names)
    expected = model.predict_proba(series)
    for form, given in collections_of(series).items():
        np.testing.assert_array_equal(model.predict_proba(given), expected, err_msg=form)
        fitted = small(head="pooled", epochs=1).fit(given, names)
        np.testing.assert_array_equal(fitted.predict_proba(series), expected, err_msg=form)
        assert hasattr(fitted, "n_features_in_") == (is_equal and form == "lists"), form  # a table


def test_a_nested_frame_of_several_channels() -> None:
    pandas = pytest.importorskip("pandas")
    panel, names = waves(8)
    columns = {f"channel {place}": [pandas.Series(case[place]) for case in panel] for place in range(2)}
    frame = pandas.DataFrame(columns)
    model = small(epochs=1).fit(frame, names)
    np.testing.assert_array_equal(model.predict_proba(frame), model.predict_proba(panel))
    frame.iat[3, 1] = pandas.Series([1.0, 2.0])
    with pytest.raises(DataError, match="case 3: expected numbers of equal length per channel"):
        model.predict(frame)


def test_a_fold_of_equal_series_among_unequal_ones() -> None:
    panel, names = waves(12, channels=1)
    series = [case[0, : 10 if place < 6 else 16] for place, case in enumerate(panel)]
    assert cross_val_score(small(head="pooled", epochs=1), series, names, cv=KFold(2)).shape == (2,)


def test_series_of_another_length_than_the_fitted_table() -> None:
    panel, names = waves(8, channels=1)
    model = small(head="pooled", epochs=1).fit(panel[:, 0], names)
    longer, _ = waves(8, channels=1, steps=26)
    expected = model.predict(longer)
    assert model.predict(list(longer[:, 0])).tolist() == expected.tolist()
    assert model.predict([longer[0, 0]]).tolist() == expected[:1].tolist()
    with pytest.raises(
        DataError, match=r"X has 26 features, but AarenClassifier is expecting 20.*pass X\[:, np\.newaxis\]"
    ):
        model.predict(longer[:, 0])
    assert model.predict(longer[:, 0][:, np.newaxis]).tolist() == expected.tolist()


@pytest.mark.parametrize("embedding", ["causal", "circular"])
def test_an_answer_does_not_depend_on_what_else_is_asked(embedding: str) -> None:
    model = small(embedding=embedding, head="pooled", epochs=2).fit(*waves())
    cases = [waves(1, steps=steps, seed=steps)[0][0] for steps in (20, 31, 12, 26, 20, 31)]
    alone = np.concatenate([model.predict_proba([case]) for case in cases])
    np.testing.assert_allclose(model.predict_proba(cases), alone, atol=1e-12)


def test_the_same_random_state_gives_the_same_fit() -> None:
    panel, names = waves()
    one, two, other = (small(random_state=state, epochs=2).fit(panel, names) for state in (3, 3, 4))
    np.testing.assert_array_equal(one.predict_proba(panel), two.predict_proba(panel))
    assert not np.array_equal(one.predict_proba(panel), other.predict_proba(panel))
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr]
    small(epochs=1).fit(panel, names)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # type: ignore[arg-type]


def test_held_out_cases_choose_the_epoch() -> None:
    panel, names = waves()
    model = small(validation_fraction=0.25, patience=2, epochs=100).fit(panel, names)
    assert model.n_iter_ <= 100
    assert model.score(panel, names) >= 0.8
    assert small(epochs=3).fit(panel, names).n_iter_ == 3


def test_pipelines_cross_validation_and_grid_search() -> None:
    panel, names = waves(channels=1)
    table = panel[:, 0]
    pipeline = make_pipeline(StandardScaler(), small(epochs=15))
    assert pipeline.fit(table, names).score(table, names) >= 0.9
    assert cross_val_score(small(epochs=15), panel, names, cv=2).mean() >= 0.8
    cases, names = ragged()
    search = GridSearchCV(small(), {"head": ["flattened", "pooled"]}, cv=2).fit(cases, names)
    assert search.best_params_["head"] in ("flattened", "pooled")
    assert search.predict(cases).shape == (40,)


def test_cloning_and_pickling(fitted: AarenClassifier) -> None:
    panel, _ = waves(seed=2)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(panel), fitted.predict_proba(panel))
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(panel)


@pytest.mark.parametrize("head", ["flattened", "pooled"])
def test_a_stream_of_raw_samples_ends_in_the_batch_answer(head: str) -> None:
    model = small(head=head).fit(*waves())
    panel, _ = waves(3, seed=5)
    expected = model.predict_proba(panel)
    session = model.stream()
    for sample in panel[0].T:
        probabilities = session.push(sample)
    np.testing.assert_allclose(probabilities.numpy(), expected[0], rtol=1e-4, atol=1e-5)
    assert session.label == model.predict(panel)[0]
    together = model.stream(batch_size=3)
    for samples in np.moveaxis(panel, 2, 0):
        together.push(samples)
    assert together.label.tolist() == model.predict(panel).tolist()  # type: ignore[attr-defined]


def test_streams_of_one_channel_take_numbers() -> None:
    panel, names = waves(channels=1)
    model = small(epochs=1).fit(panel[:, 0], names)
    one, two = model.stream(), model.stream(batch_size=2)
    assert one.push(50.0).shape == (2,)
    assert one.push([50.0]).shape == (2,)
    assert two.push([50.0, 51.0], mask=[True, False]).shape == (2, 2)


def test_the_model_of_a_run_becomes_an_estimator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aeon")
    from aeon.datasets import load_japanese_vowels

    monkeypatch.delenv("AAREN_DATA", raising=False)
    run = make_run(
        "classification", "JapaneseVowels", model="aaren-causal", profile="smoke", assignments=["threads=1"]
    )
    record = train(run, tmp_path / "run")
    model = AarenClassifier.from_run(tmp_path / "run")
    cases, labels = load_japanese_vowels(split="test")
    assert model.score(cases, labels) == pytest.approx(record.metric("test.accuracy"), abs=1 / 370)
    assert model.stream().push(cases[0][:, 0]).shape == (9,)
    reference = make_run("classification", "JapaneseVowels", model="majority", profile="smoke")
    train(reference, tmp_path / "majority")
    with pytest.raises(ConfigError, match="is no trained classifier"):
        AarenClassifier.from_run(tmp_path / "majority")


def test_aeon_s_loaders() -> None:
    pytest.importorskip("aeon")
    from aeon.datasets import load_japanese_vowels, load_unit_test

    cases, labels = load_japanese_vowels(split="train")
    model = small(width=32, epochs=8).fit(cases, labels)
    assert model.score(cases, labels) >= 0.8
    panel, labels = load_unit_test(split="train")
    assert small().fit(panel, labels).predict(panel).shape == labels.shape


def test_a_channel_that_never_moves() -> None:
    panel, names = waves()
    panel[:, 1] = 7.0
    model = small().fit(panel, names)
    panel[:, 1] = 8.0
    assert np.isfinite(model.predict_proba(panel)).all()


def test_labels_unseen_in_training(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    with pytest.raises(
        DataError, match=r"labels unseen in fit: 'odd'; fit saw 'fast', 'slow'.*Leave these cases out"
    ):
        fitted.score(panel, np.where(names == "slow", "odd", names))


def test_labels_of_another_type() -> None:
    panel, _ = waves(4)
    numbers = np.array([1, 2, 1, 2])
    with pytest.raises(
        DataError,
        match=r"unseen in fit: 1, 2; fit saw '1', '2'\. The same text, another type: y\.astype\(str\)",
    ):
        small(epochs=1).fit(panel, numbers.astype(str)).score(panel, numbers)
    model = small(epochs=1).fit(panel, numbers)
    with pytest.raises(DataError, match=r"unseen in fit: '1', '2'; fit saw 1, 2\. .* y\.astype\(int\)"):
        model.score(panel, numbers.astype(str))
    with pytest.raises(DataError, match=r"unseen in fit: '1', 'x'; fit saw 1, 2\. Leave these cases out"):
        model.score(panel, ["1", "x", "1", "x"])
    words = r"y holds labels of several types: int, str, such as 1 and 'a'\..* y\.astype\(str\)"
    for attempt in (small().fit, model.score):
        with pytest.raises(DataError, match=words):
            attempt(panel, np.array([1, "a", 1, "a"], dtype=object))
        with pytest.raises(DataError, match=r"case 1 has no label \(None\)\. Leave it out"):
            attempt(panel, np.array(["a", None, "a", "b"], dtype=object))


def test_one_class_only() -> None:
    panel, _ = waves(4)
    with pytest.raises(DataError, match=r"y: 4 case\(s\) of one class only"):
        small().fit(panel, ["a"] * 4)


def test_no_more_cases_than_classes() -> None:
    panel, _ = waves(4)
    with pytest.raises(DataError, match="4 cases for 4 classes: every case has a label of its own"):
        small().fit(panel, ["a", "b", "c", "d"])


@pytest.mark.parametrize("nothing", [[], (), np.zeros((0, 2, 20)), np.empty(0, dtype=object)])
def test_no_case_at_all(nothing: Any, fitted: AarenClassifier) -> None:
    attempts = (lambda: small().fit(nothing, []), lambda: small().fit(nothing, ["a", "b"]))
    for attempt in (*attempts, lambda: fitted.predict(nothing), lambda: fitted.predict_proba(nothing)):
        with pytest.raises(DataError, match="X holds no case at all: expected at least one series"):
            attempt()


def test_series_without_steps_or_with_one(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    with pytest.raises(DataError, match=r"case 0 has 1 time step\(s\); a series has at least 2"):
        small().fit(panel[:, :, :1], names)
    with pytest.raises(DataError, match=r"case 1 has 0 time step\(s\).*Leave it out\.$"):
        fitted.predict([panel[0], panel[1][:, :0]])
    with pytest.raises(DataError, match=r"case 0 has 1 time step.*\(cases, channels, steps\): transpose it"):
        small().fit(panel.transpose(0, 2, 1)[:, :, :1], names)
    with pytest.raises(DataError, match=r"case 0 has 0 time step\(s\).*Leave it out\.$"):
        small().fit(panel[:, :, :0], names)
    with pytest.raises(DataError, match=r"X, case 0: no channel at all"):
        small().fit(panel[:, :0], names)
    with pytest.raises(DataError, match="n_features = 1: each row of a 2-D array is a series of one channel"):
        small().fit(panel[:, 0, :1], names)


def test_missing_values(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    panel[2, 1, 5] = np.nan
    for attempt in (lambda: small().fit(panel, names), lambda: fitted.predict(panel)):
        with pytest.raises(DataError, match=r"case 2 holds nan \(channel 1, step 5\).*Interpolate"):
            attempt()
    with pytest.raises(ValueError, match="Input X contains NaN"):
        small().fit(panel[:, 1], names)
    with pytest.raises(DataError, match="item 0 of this session holds nan"):
        fitted.stream().push([1.0, np.nan])


def test_complex_numbers(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    for given in (panel + 1j, list(panel + 1j)):
        for attempt in (
            lambda given=given: small().fit(given, names),
            lambda given=given: fitted.predict(given),
        ):
            with pytest.raises(DataError, match=r"complex numbers.*real and imaginary parts as two channels"):
                attempt()


def test_other_channels_than_in_fit(fitted: AarenClassifier) -> None:
    panel, names = waves(4, channels=3)
    with pytest.raises(DataError, match=r"case 0: 3 channel\(s\); the estimator was fitted on 2"):
        fitted.predict(panel)
    with pytest.raises(DataError, match=r"case 1: 2 channel\(s\); the first case has 3"):
        small().fit([panel[0], panel[1, :2], *panel[2:]], names)
    with pytest.raises(ShapeError, match=r"a sample of this session is \(2,\).*got \(3,\)"):
        fitted.stream().push([1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"must hold one array \(channels, steps\) per case"):
        fitted.predict([panel[0, :2], panel[0, 0]])


def test_series_longer_than_the_flattened_head(fitted: AarenClassifier) -> None:
    panel, names = waves(4, steps=25)
    shorter = [panel[0, :, :20], panel[1]]
    with pytest.raises(
        ShapeError,
        match=r"X, case 1: .*weights for 20 steps, the length it was built for.*has 25.*head='pooled'",
    ) as caught:
        fitted.predict(shorter)
    assert "reset" not in str(caught.value)
    session = fitted.stream()
    for sample in panel[0].T[:20]:
        session.push(sample)
    with pytest.raises(ShapeError, match=r"weights for 20 steps.*session.reset"):
        session.push(panel[0, :, 20])
    assert small(head="pooled").fit(*waves()).predict(panel).shape == names.shape


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True, "2"])
def test_streams_of_an_impossible_number(batch_size: Any, fitted: AarenClassifier) -> None:
    with pytest.raises(ConfigError, match=f"batch_size must be None, or an integer.*got {batch_size!r}"):
        fitted.stream(batch_size=batch_size)


def test_the_published_embedding_cannot_be_streamed() -> None:
    model = small(embedding="circular", epochs=1).fit(*waves(4))
    with pytest.raises(ConfigError, match="cannot go along a stream"):
        model.stream()


def test_settings_that_cannot_be() -> None:
    panel, names = waves(4)
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        small(num_heads=3).fit(panel, names)
    with pytest.raises(ConfigError, match="unknown head 'mean'"):
        small(head="mean").fit(panel, names)
    with pytest.raises(ConfigError, match="epochs must be at least 1; got 0; batch_size must be at least 1"):
        small(epochs=0, batch_size=0).fit(panel, names)
    with pytest.raises(
        ConfigError, match=r"epochs must be an integer; got 1\.5; patience must be an integer; got 'x'"
    ):
        small(epochs=1.5, patience="x").fit(panel, names)
    assert small(epochs=np.int64(1)).fit(panel, names).n_iter_ == 1
    with pytest.raises(ConfigError, match="unknown device 'gpu'"):
        small(device="gpu").fit(panel, names)
    with pytest.raises(ConfigError, match=r"validation_fraction must be at least 0 and below 1; got 1.5"):
        small(validation_fraction=1.5).fit(panel, names)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        small().fit(panel, names[:3])
