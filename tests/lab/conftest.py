"""Short ways to the toy tasks for the tests of the grid."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aaren.engine.config import EngineConfig, RunConfig
from aaren.lab.plan import PlannedRun
from aaren.lab.schedule import Display
from aaren.lab.workers import LocalWorkers
from support import toy_trouble
from support.toy_task import SETTING, ToyConfig

ToyRun = Callable[..., RunConfig]


@pytest.fixture
def toy_run() -> ToyRun:
    """Configure a toy run that saves a checkpoint after every update."""

    def configure(*, seed: int = 0, checkpoint_seconds: float = 0.0, **choices: object) -> RunConfig:
        return RunConfig(
            setting=SETTING.name,
            task=ToyConfig(**choices),
            seed=seed,
            engine=EngineConfig(threads=1, checkpoint_seconds=checkpoint_seconds),
        )

    return configure


@pytest.fixture
def planned(toy_run: ToyRun, tmp_path: Path) -> Callable[..., PlannedRun]:
    """Plan a toy run below the test's folder."""

    def make(seed: int = 0, **choices: object) -> PlannedRun:
        config = toy_run(seed=seed, **choices)
        folder = tmp_path / "runs" / config.setting / config.folder_name()
        return PlannedRun(config=config, folder=folder, command=f"toy {seed}", dataset="line")

    return make


@pytest.fixture
def troubled(tmp_path: Path) -> Callable[..., PlannedRun]:
    """Plan a toy run that hangs or dies, as its dataset says."""

    def make(dataset: str, *, epochs: int = 2) -> PlannedRun:
        config = RunConfig(
            setting=toy_trouble.SETTING.name,
            task=ToyConfig(dataset=dataset, epochs=epochs),
            engine=EngineConfig(threads=1, checkpoint_seconds=0.0),
        )
        return PlannedRun(config=config, folder=tmp_path / "runs" / dataset, command="toy", dataset=dataset)

    return make


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a subprocess that can import the toy task."""
    tests = str(Path(__file__).parents[1])
    return {**os.environ, "PYTHONPATH": tests, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}


class Notes(Display):
    """A display that keeps what it is to show."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def workers() -> Iterator[LocalWorkers]:
    """One worker process at a time."""
    made = LocalWorkers(1, threads=1)
    yield made
    made.close()
