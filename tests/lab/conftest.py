"""Short ways to the toy task for the tests of the grid."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.train.config import EngineConfig, RunConfig
from support.toy_task import TASK, ToyConfig


@pytest.fixture
def toy_run() -> Callable[..., RunConfig]:
    """Configure a toy run that saves a checkpoint after every update."""

    def configure(*, seed: int = 0, checkpoint_seconds: float = 0.0, **choices: object) -> RunConfig:
        return RunConfig(
            setting=TASK.name,
            task=ToyConfig(**choices),
            seed=seed,
            engine=EngineConfig(threads=1, checkpoint_seconds=checkpoint_seconds),
        )

    return configure


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a subprocess that can import the toy task."""
    tests = str(Path(__file__).parents[1])
    return {**os.environ, "PYTHONPATH": tests, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}
