import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
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
        DataError, match=r"labels unseen in fit: odd; fit saw fast, slow.*Leave these cases out"
    ):
        fitted.score(panel, np.where(names == "slow", "odd", names))


def test_one_class_only() -> None:
    panel, _ = waves(4)
    with pytest.raises(DataError, match=r"y: 4 case\(s\) of one class only"):
        small().fit(panel, ["a"] * 4)


def test_no_more_cases_than_classes() -> None:
    panel, _ = waves(4)
    with pytest.raises(DataError, match="4 cases for 4 classes: every case has a label of its own"):
        small().fit(panel, ["a", "b", "c", "d"])
    with pytest.raises(DataError, match="X holds no case at all"):
        small().fit(panel[:0], [])


def test_series_without_steps_or_with_one(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    with pytest.raises(DataError, match=r"case 0 has 1 time step\(s\); a series has at least 2"):
        small().fit(panel[:, :, :1], names)
    with pytest.raises(DataError, match=r"case 1 has 0 time step\(s\)"):
        fitted.predict([panel[0], panel[1][:, :0]])
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
    with pytest.raises(ShapeError, match=r"weights for 20 steps.*has 25.*head='pooled'"):
        fitted.predict(panel)
    session = fitted.stream()
    for sample in panel[0].T[:20]:
        session.push(sample)
    with pytest.raises(ShapeError, match=r"weights for 20 steps.*session.reset"):
        session.push(panel[0, :, 20])
    assert small(head="pooled").fit(*waves()).predict(panel).shape == names.shape


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
    with pytest.raises(ConfigError, match=r"validation_fraction must be at least 0 and below 1; got 1.5"):
        small(validation_fraction=1.5).fit(panel, names)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        small().fit(panel, names[:3])
