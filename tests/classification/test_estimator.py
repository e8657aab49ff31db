"""AarenClassifier as scikit-learn and its users see it: fit, predict, score, clone, keep."""

import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from aaren.classification.estimator import AarenClassifier
from support.wave_classifier import ragged, small, waves


def test_the_same_random_state_gives_the_same_fit() -> None:
    panel, names = waves()
    one, two, other = (small(random_state=state).fit(panel, names) for state in (3, 3, 4))
    np.testing.assert_array_equal(one.predict_proba(panel), two.predict_proba(panel))
    assert not np.array_equal(one.predict_proba(panel), other.predict_proba(panel))
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr]
    small().fit(panel, names)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # type: ignore[arg-type]


def test_pipelines_cross_validation_and_grid_search() -> None:
    panel, names = waves(channels=1)
    table = panel[:, 0]
    pipeline = make_pipeline(StandardScaler(), small())
    assert pipeline.fit(table, names).score(table, names) >= 0.9
    assert cross_val_score(small(), panel, names, cv=2).mean() >= 0.8
    cases, names = ragged()
    search = GridSearchCV(small(), {"size": ["default", "small"]}, cv=2).fit(cases, names)
    assert search.best_params_["size"] in ("default", "small")
    assert search.predict(cases).shape == (40,)


def test_cloning_and_pickling(fitted: AarenClassifier) -> None:
    panel, _ = waves(seed=2)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(panel), fitted.predict_proba(panel))
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(panel)


def test_a_channel_that_never_moves() -> None:
    panel, names = waves()
    panel[:, 1] = 7.0
    model = small().fit(panel, names)
    panel[:, 1] = 8.0
    assert np.isfinite(model.predict_proba(panel)).all()
