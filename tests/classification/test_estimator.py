"""AarenClassifier as scikit-learn and its users see it: fit, predict, score, clone, keep."""

import pickle
from pathlib import Path

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

from aaren.classification.estimator import AarenClassifier
from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.errors import ConfigError, ShapeError
from support.wave_classifier import ragged, small, waves


@pytest.mark.long
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


def test_a_channel_that_never_moves() -> None:
    panel, names = waves()
    panel[:, 1] = 7.0
    model = small().fit(panel, names)
    panel[:, 1] = 8.0
    assert np.isfinite(model.predict_proba(panel)).all()


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


def test_settings_that_cannot_be() -> None:
    panel, names = waves(4)
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        small(num_heads=3).fit(panel, names)
    with pytest.raises(ConfigError, match="unknown head 'mean'"):
        small(head="mean").fit(panel, names)
    with pytest.raises(ConfigError, match="batch_size must be at least 1; got 0; epochs must be at least 1"):
        small(epochs=0, batch_size=0).fit(panel, names)
    with pytest.raises(
        ConfigError, match=r"patience must be an integer; got 'x'; epochs must be an integer; got 1\.5"
    ):
        small(epochs=1.5, patience="x").fit(panel, names)
    assert small(epochs=np.int64(1)).fit(panel, names).n_iter_ == 1
    with pytest.raises(ConfigError, match="unknown device 'gpu'"):
        small(device="gpu").fit(panel, names)
    with pytest.raises(ConfigError, match=r"validation_fraction must be at least 0 and below 1; got 1.5"):
        small(validation_fraction=1.5).fit(panel, names)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        small().fit(panel, names[:3])
