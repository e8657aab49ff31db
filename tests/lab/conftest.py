"""Short ways to the toy task for the tests of the grid."""

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.engine.config import EngineConfig, RunConfig
from aaren.lab.job import Job, Message, carry_out
from aaren.lab.plan import PlannedRun
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
def environment() -> dict[str, str]:
    """The environment of a subprocess that can import the toy task."""
    tests = str(Path(__file__).parents[1])
    return {**os.environ, "PYTHONPATH": tests, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}


class InlineCrew:
    """Workers without processes: a job is carried out when somebody listens. Some of them die."""

    def __init__(self, size: int = 1, *, deaths: int = 0, stillborn: int = 0, lag: int = 0) -> None:
        self.size, self.deaths, self.stillborn = size, deaths, stillborn
        self.lag = lag  # times that somebody must listen before the first job begins
        self.told: deque[tuple[int, Message]] = deque()
        self.jobs: deque[tuple[int, Job]] = deque()
        self.hired = 0
        self.is_paused = self.is_closed = False

    def hire(self, place: int) -> None:
        self.hired += 1
        is_dead = self.hired <= self.stillborn
        self.told.append(
            (place, Message(event="died", text="no torch") if is_dead else Message(event="ready"))
        )

    def give(self, place: int, job: Job) -> None:
        self.jobs.append((place, job))

    def listen(self, seconds: float) -> tuple[int, Message] | None:
        if not self.told and self.jobs and self.lag:
            self.lag -= 1
        elif not self.told and self.jobs:
            place, job = self.jobs.popleft()
            if self.deaths:
                self.deaths -= 1
                last = Message(event="died", text="killed by SIGKILL")
            else:
                last = carry_out(
                    job, lambda message: self.told.append((place, message)), lambda: self.is_paused
                )
            self.told.append((place, last))
        if not self.told:
            time.sleep(min(seconds, 0.01))
        return self.told.popleft() if self.told else None

    def pause(self) -> None:
        self.is_paused = True

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def inline_crew() -> type[InlineCrew]:
    """See InlineCrew."""
    return InlineCrew
