"""The four estimators as siblings: what is the same in all of them."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from aaren import AarenClassifier, AarenEventForecaster, AarenForecaster, AarenPolicy
from aaren.errors import ConfigError

RNG = np.random.default_rng(0)
SERIES = np.sin(np.where(np.arange(20) % 2, 0.9, 0.3)[:, None] * np.arange(16) + np.arange(20)[:, None])
LABELS = np.where(np.arange(20) % 2, "fast", "slow")
TABLE = pd.DataFrame({"ds": np.arange(60), "y": np.arange(60) % 5 + 0.1 * RNG.normal(size=60)})
LOG = pd.DataFrame(
    {"sequence": RNG.choice(["ann", "bob"], 60), "time": np.cumsum(RNG.exponential(1.0, 60)), "kind": "a"}
)
EPISODES = [
    {
        "observations": RNG.normal(size=(6, 2)),
        "actions": RNG.integers(2, size=6),
        "rewards": RNG.normal(size=6),
    }
    for _ in range(8)
]
Fit = Callable[..., Any]
MAKE: dict[str, Fit] = {
    "AarenForecaster": lambda **given: AarenForecaster(4, **given),
    "AarenClassifier": lambda **given: AarenClassifier(size="small", **given),
    "AarenEventForecaster": lambda **given: AarenEventForecaster(width=8, updates=2, patience=9, **given),
    "AarenPolicy": lambda **given: AarenPolicy(width=8, updates=2, **given),
}
DATA: dict[str, tuple[Any, ...]] = {
    "AarenForecaster": (TABLE,),
    "AarenClassifier": (SERIES, LABELS),
    "AarenEventForecaster": (LOG,),
    "AarenPolicy": (EPISODES,),
}
FITTED: dict[str, Any] = {}
quiet = pytest.mark.filterwarnings("ignore:after 2 updates")  # two updates are few, on purpose
each = pytest.mark.parametrize("name", MAKE)
each_random = pytest.mark.parametrize("name", [name for name in MAKE if name != "AarenForecaster"])


def fit(name: str, **given: Any) -> Any:
    return MAKE[name](**given).fit(*DATA[name])


def answer(model: Any) -> np.ndarray:
    """One number or more that depend on all that was learned."""
    if isinstance(model, AarenClassifier):
        return model.predict_proba(SERIES)
    if isinstance(model, AarenPolicy):
        return np.concatenate([weights.detach().numpy().ravel() for weights in model.model_.parameters()])
    return model.predict().select_dtypes("number").to_numpy()


@pytest.fixture
def fitted(name: str) -> Any:
    if name not in FITTED:
        FITTED[name] = fit(name, **({} if name == "AarenForecaster" else {"random_state": 1}))
    return FITTED[name]


@each_random
def test_one_name_of_the_seed_in_all(name: str) -> None:
    assert MAKE[name]().get_params()["random_state"] == 0  # two fits are alike unless asked otherwise
    with pytest.raises(ConfigError, match="unknown setting 'seed'"):
        MAKE[name](seed=0)


@each
def test_a_misspelt_setting_is_named_with_the_right_one(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown setting 'verbos'; did you mean 'verbose'"):
        MAKE[name](**{"verbos": 1})


@quiet
@each_random
def test_random_states(name: str, fitted: Any) -> None:
    np.testing.assert_array_equal(answer(fitted), answer(fit(name, random_state=1)))
    drawn = [answer(fit(name, random_state=np.random.RandomState(3))) for _ in range(2)]
    np.testing.assert_array_equal(*drawn)
    assert answer(fit(name, random_state=None)).shape == drawn[0].shape


@quiet
@each
def test_copies(fitted: Any, tmp_path: Path) -> None:
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert not hasattr(again, "model_")
    assert repr(again) == repr(fitted)
    for copied in (pickle.loads(pickle.dumps(fitted)), type(fitted).load(fitted.save(tmp_path))):
        np.testing.assert_array_equal(answer(copied), answer(fitted))
        assert copied.get_params() == fitted.get_params()
