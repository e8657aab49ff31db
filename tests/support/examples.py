"""The trained streams of `examples/models`, and what they learned from."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MODELS = Path(__file__).parents[2] / "examples" / "models"


@cache
def generators() -> ModuleType:
    """Return `examples/models/generators.py`."""
    pytest.importorskip("pandas")
    described = importlib.util.spec_from_file_location("generators", MODELS / "generators.py")
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


@cache
def load_stream(name: str) -> Any:  # Any: each is of another estimator
    """Load a saved model with the estimator that wrote it."""
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    from aaren import AarenClassifier, AarenEventForecaster, AarenForecaster, AarenPolicy

    kinds: dict[str, Any] = {
        "strokes": AarenClassifier,
        "sensor": AarenForecaster,
        "machines": AarenEventForecaster,
        "cartpole": AarenPolicy,
    }
    return kinds[name].load(MODELS / name)
