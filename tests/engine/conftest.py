"""Short ways to the toy task for the engine's tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.engine.config import EngineConfig, RunConfig
from support.toy_task import SETTING, ToyConfig, ToyExperiment, ToyModelConfig


@pytest.fixture
def toy() -> Callable[..., ToyExperiment]:
    """Open a toy experiment; `dropout` is the model's, everything else the task's."""

    def open_toy(*, dropout: float = 0.1, seed: int = 0, **choices: object) -> ToyExperiment:
        return SETTING.open(ToyConfig(model=ToyModelConfig(dropout=dropout), **choices), seed=seed)

    return open_toy


@pytest.fixture
def toy_run() -> Callable[..., RunConfig]:
    """Configure a toy run that saves a checkpoint after every update."""

    def configure(
        *, checkpoint_seconds: float = 0.0, predictions: bool = False, **choices: object
    ) -> RunConfig:
        return RunConfig(
            setting=SETTING.name,
            task=ToyConfig(**choices),
            engine=EngineConfig(threads=1, checkpoint_seconds=checkpoint_seconds, predictions=predictions),
        )

    return configure


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a subprocess that can import the toy task."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}
