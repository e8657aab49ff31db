"""AarenClassifier: learning, streams, early decisions, saving."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from aaren import AarenClassifier
from aaren.classification import FeatureClassifier
from aaren.errors import ConfigError, DataError
from aaren.files.checksums import read_files, write_files
from support.wave_classifier import ragged, waves


@pytest.fixture(scope="module")
def model() -> AarenClassifier:
    return AarenClassifier(random_state=0, threads=1).fit(*waves())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # of an array interface not in use
def test_scikit_learn_accepts_it() -> None:
    check_estimator(AarenClassifier(size="small"))


@pytest.mark.parametrize("size", ["default", "small"])
def test_it_learns_by_default(size: str) -> None:
    panel, names = waves(seed=1)
    model = AarenClassifier(size=size, random_state=0).fit(*waves())
    assert isinstance(model.model_, FeatureClassifier)
    assert model.score(panel, names) >= 0.95
    np.testing.assert_allclose(model.predict_proba(panel).sum(axis=1), 1.0)
    if size == "small":
        assert model.stream().state.nbytes < 8000  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", ["default", "small"])
def test_when_something_happens_is_learned_where_that_is_the_class(size: str) -> None:
    def days(cases: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng, hours = np.random.default_rng(seed), np.arange(24)
        classes = rng.integers(3, size=cases)
        peaks = np.exp(-((hours - 7 - 2 * classes[:, np.newaxis]) ** 2) / 8)
        return peaks + rng.normal(0, 0.4, (cases, 24)), classes

    (values, classes), (others, wanted) = days(150, 0), days(300, 1)
    model = AarenClassifier(size=size, random_state=0).fit(values, classes)
    linear = LogisticRegression(max_iter=1000).fit(values, classes).score(others, wanted)
    assert model.model_.config.has_places
    assert model.score(others, wanted) > linear - 0.03
    session = model.stream()
    for value in others[0]:
        probabilities = session.push(value)
    np.testing.assert_allclose(probabilities, model.predict_proba(others[:1])[0], rtol=1e-4, atol=1e-5)


def test_a_stream_ends_in_the_batch_answer(model: AarenClassifier) -> None:
    panel, _ = waves(3, seed=5)
    expected = model.predict_proba(panel)
    session = model.stream()
    for step, sample in enumerate(panel[0].T, start=1):
        probabilities = session.push(sample)
        if step == 10:
            half = model.predict_proba_at(panel[:1], 0.5)[0]
            np.testing.assert_allclose(probabilities, half, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(probabilities, expected[0], rtol=1e-4, atol=1e-5)
    together = model.stream(batch_size=3)
    for samples in np.moveaxis(panel, 2, 0):
        together.push(samples)
    np.testing.assert_allclose(together.finish(), expected, rtol=1e-4, atol=1e-5)
    assert together.label.tolist() == model.predict(panel).tolist()  # type: ignore[attr-defined]


def test_series_of_several_lengths_end_with_finish() -> None:
    cases, names = ragged()
    model = AarenClassifier(size="small", random_state=0).fit(cases, names)
    session = model.stream()
    for sample in cases[0].T:
        session.push(sample)
    np.testing.assert_allclose(session.finish(), model.predict_proba(cases[:1])[0], rtol=1e-4, atol=1e-5)
    longer, _ = waves(2, steps=50)
    assert model.predict(longer).shape == (2,)


def test_an_answer_does_not_depend_on_what_else_is_asked(model: AarenClassifier) -> None:
    cases = [waves(1, steps=steps, seed=steps)[0][0] for steps in (20, 31, 12, 26, 20, 31)]
    alone = np.concatenate([model.predict_proba([case]) for case in cases])
    np.testing.assert_allclose(model.predict_proba(cases), alone, atol=1e-12)


def test_a_promise_about_stopping_early(model: AarenClassifier) -> None:
    stop = model.early_stop(loss=0.05)
    assert 0.3 <= stop.threshold <= 1.01
    assert stop.full_accuracy - stop.accuracy <= 0.05
    assert 0.0 < stop.share_seen <= 1.0
    panel, _ = waves(6, seed=3)
    streams = model.stream(batch_size=6, stop_at=0.6)
    for samples in np.moveaxis(panel, 2, 0):
        streams.push(samples)
    assert np.asarray(streams.is_decided).all()
    assert np.asarray(streams.decided_at).max() <= 20
    assert set(np.asarray(streams.decision)) <= {"fast", "slow"}
    one = model.stream(stop_at=stop)
    assert one.decision is None
    assert one.decided_at == 0
    one.push(panel[0, :, 0])
    assert not one.is_decided
    streams.reset()
    assert not np.asarray(streams.is_decided).any()
    assert model.stream(stop_at="auto").threshold == model.early_stop().threshold


def test_a_decision_waits_for_where_the_rule_was_validated(model: AarenClassifier) -> None:
    panel, _ = waves(1, seed=3)
    session = model.stream(stop_at=0.01)
    session.push(panel[0, :, 0])
    assert not session.is_decided  # the first look is after two of twenty samples
    session.push(panel[0, :, 1])
    assert session.is_decided
    assert session.decided_at == 2


@pytest.mark.parametrize("wrong", [0.0, -1.0, True, [0.5]])
def test_thresholds_that_cannot_be(model: AarenClassifier, wrong: object) -> None:
    with pytest.raises(ConfigError, match="stop_at must be a probability above 0, 'auto', or"):
        model.stream(stop_at=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown stop_at 'never'"):
        model.stream(stop_at="never")


def test_the_trade_off_is_drawn(model: AarenClassifier) -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert model.plot_early_stop(axes=axes) is axes
    assert len(axes.lines) == 3


@pytest.mark.parametrize("labels", [str, int, bool])
def test_saved_estimators_come_back(tmp_path: Path, labels: type) -> None:
    panel, names = waves()
    truth = (names == "fast").astype(labels) if labels is not str else names
    model = AarenClassifier(size="small", random_state=np.int64(0)).fit(panel, truth)
    again = AarenClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(panel), model.predict_proba(panel))
    assert again.predict(panel).dtype == model.predict(panel).dtype
    assert again.early_stop() == model.early_stop()
    assert again.get_params() == model.get_params()
    json.loads((tmp_path / "model" / "estimator.json").read_text())
    with pytest.raises(DataError, match=r"no saved AarenClassifier in .*estimator.json is missing"):
        AarenClassifier.load(tmp_path)


def test_what_fit_tells(capsys: pytest.CaptureFixture[str]) -> None:
    model = AarenClassifier(size="small", verbose=True, random_state=0).fit(*waves())
    told = capsys.readouterr().err
    assert f"a stream keeps {model.model_.config.state_bytes:,} bytes" in told
    assert "µs per sample" in told
    assert "cases left out" in told
    AarenClassifier(size="small", random_state=0).fit(*waves())
    assert capsys.readouterr() == ("", "")


def test_settings_that_cannot_be() -> None:
    panel, names = waves(4)
    with pytest.raises(ConfigError, match="unknown size 'tiny'"):
        AarenClassifier(size="tiny").fit(panel, names)
    with pytest.raises(ConfigError, match="unknown setting 'width'"):
        AarenClassifier(width=8)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        AarenClassifier().fit(panel, names[:3])


def test_the_table_beside_a_linear_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    names = np.where(np.arange(60) % 2, "up", "down")
    slopes = np.where(names == "up", 1.0, -1.0)[:, None] * np.linspace(-1, 1, 20)
    noisy = slopes + 1.5 * rng.normal(
        size=(60, 20)
    )  # a linear problem: nothing is better than a linear model
    model = AarenClassifier(size="small", random_state=0, verbose=True).fit(noisy, names)
    assert list(model.held_out_) == ["AarenClassifier", "ridge on the values", "most frequent class"]
    assert model.held_out_["most frequent class"] == 0.5
    assert model.held_out_["ridge on the values"] > model.held_out_["AarenClassifier"]
    assert "ridge on the values is better by" in model.table()
    assert model.table().endswith("use the baseline.")
    assert model.table() in capsys.readouterr().err
    assert AarenClassifier.load(model.save(tmp_path)).table() == model.table()
    swung = np.sin(np.where(names == "up", 0.9, 0.3)[:, None] * np.arange(20) + rng.uniform(0, 6, (60, 1)))
    ours = AarenClassifier(size="small", random_state=0).fit(swung, names)
    assert ours.gain_[0] > 2 * ours.gain_[1]
    assert "AarenClassifier is better by" in ours.table()


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    swung = np.sin(np.outer(np.where(np.arange(20) % 2, 0.9, 0.3), np.arange(12)))
    folder = AarenClassifier(size="small").fit(swung, np.arange(20) % 2).save(tmp_path)
    for text in ("", "{}", "[]", '{"settings": {"size": "small"}}'):
        write_files(folder, {**read_files(folder), "estimator.json": text.encode()})
        with pytest.raises(DataError, match=r"damaged or incomplete AarenClassifier .* Save it again"):
            AarenClassifier.load(folder)
