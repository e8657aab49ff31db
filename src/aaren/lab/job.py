"""One job for a worker, what the worker tells meanwhile, and carrying it out. All of it travels as JSON.

The same function runs a job in a local worker process and inside a Ray actor, so results are the same.
"""

import json
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch

from aaren.engine.config import RunConfig, from_mapping, to_toml
from aaren.engine.loop import PausedError
from aaren.engine.plan import Evaluation, Plan, RunStatus
from aaren.engine.progress import Observer
from aaren.engine.record import RunRecord
from aaren.engine.run import train
from aaren.engine.setting import import_setting
from aaren.engine.use import Sweep, SweepRow, sweep_run
from aaren.errors import StateError

PROGRESS_SECONDS = 0.5

Event: TypeAlias = Literal[
    "ready",  # a worker waits for a job
    "begin",  # a run begins or goes on
    "progress",
    "look",  # text: the metrics
    "say",
    "finished",  # text: the reported metrics
    "failed",  # text: the error; it is in the run's record
    "busy",  # another process holds the run's folder
    "unwritable",  # the disk is full or closed: no other run would fare better
    "paused",
    "died",  # a worker; text: what is known of why
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """What a worker tells."""

    event: Event
    text: str = ""
    update: int = 0
    max_updates: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Write one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Message":
        """Read it back."""
        return cls(**json.loads(line))


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A run for a worker."""

    config: RunConfig
    folder: Path
    command: str
    threads: int  # of torch, where the config does not fix them
    sweeps: tuple[Sweep, ...] = ()  # asked of the trained model, where the answers are not there yet

    def to_json(self) -> str:
        """Write one line."""
        return json.dumps(
            {
                "config": to_toml(self.config),
                "folder": str(self.folder),
                "command": self.command,
                "threads": self.threads,
                "sweeps": self.sweeps,
            }
        )

    @classmethod
    def from_json(cls, line: str) -> "Job":
        """Read it back."""
        values = json.loads(line)
        config = tomllib.loads(values["config"])
        import_setting(config["setting"])  # whoever gives the job has it imported
        return cls(
            config=from_mapping(config),
            folder=Path(values["folder"]),
            command=values["command"],
            threads=values["threads"],
            sweeps=tuple(Sweep(key, tuple(settings)) for key, settings in values["sweeps"]),
        )


Tell: TypeAlias = Callable[[Message], None]


def carry_out(job: Job, tell: Tell, is_pause_wanted: Callable[[], bool]) -> Message:
    """Run a job and return how it ended; whatever happens is told, never raised."""
    begin = time.monotonic()
    torch.set_num_threads(job.threads)
    try:
        record = train(
            job.config,
            job.folder,
            command=job.command,
            observer=_Teller(tell),
            is_pause_wanted=is_pause_wanted,
        )
        for sweep in job.sweeps:
            if not sweep.file(job.folder).is_file():
                sweep_run(job.folder, sweep, on_row=_SweepTeller(sweep.key, tell, is_pause_wanted))
    except PausedError as pause:
        return Message(event="paused", text=str(pause))
    except Exception as error:  # a failed run must not stop the grid
        return Message(event=_kind(error), text=f"{type(error).__name__}: {error}")
    return Message(event="finished", text=reported(record), seconds=time.monotonic() - begin)


def reported(record: RunRecord) -> str:
    """Write the numbers by which a run is judged.

    Numbers that are not finite, such as an accuracy without marks, are left out.
    """
    found = {name: record.metric(name) for name in record.reports}
    return metrics_text({name: value for name, value in found.items() if value == value})


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Write metrics for people.

    >>> metrics_text({"mse": 0.55299, "mae": 0.5})
    'mse 0.553, mae 0.5'
    """
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _kind(error: Exception) -> Event:
    # Lock and writer of a run folder both raise StateError; their words, which tests pin, tell them apart.
    if isinstance(error, StateError) and "is in use by process" in str(error):
        return "busy"
    if isinstance(error, StateError) and str(error).startswith("cannot write to"):
        return "unwritable"
    return "failed"


class _Teller(Observer):
    """Tells how a run goes, seldom enough not to slow it down."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.told = tell, 0.0

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        """Tell where it begins."""
        del name
        self.plan = plan
        self.tell(Message(event="begin", update=status.update, max_updates=plan.max_updates))

    def updated(self, status: RunStatus, loss: Callable[[], float]) -> None:
        """Tell of progress, now and then."""
        if time.monotonic() - self.told >= PROGRESS_SECONDS:
            self.told = time.monotonic()
            text = f"loss {loss():.4g}" if not status.curve else ""
            self.tell(
                Message(event="progress", text=text, update=status.update, max_updates=self.plan.max_updates)
            )

    def evaluated(self, status: RunStatus, look: Evaluation) -> None:
        """Tell the metric by which weights are chosen, and its best."""
        name = self.plan.selects.metric
        best = status.best["validation"][name] if status.best else look["validation"][name]
        text = f"{name} {look['validation'][name]:.4g} (best {best:.4g})"
        self.tell(Message(event="look", text=text, update=status.update, max_updates=self.plan.max_updates))

    def say(self, message: str) -> None:
        """Pass it on."""
        self.tell(Message(event="say", text=message))


class _SweepTeller:
    """Tells how a sweep goes, and stops it between two values if that is wanted."""

    def __init__(self, key: str, tell: Tell, is_pause_wanted: Callable[[], bool]) -> None:
        self.key, self.tell, self.is_pause_wanted = key, tell, is_pause_wanted

    def __call__(self, row: SweepRow) -> None:
        """Tell the value that was scored."""
        self.tell(Message(event="progress", text=f"scored with {self.key}={row.value}"))
        if self.is_pause_wanted():
            raise PausedError(f"stopped after {self.key}={row.value}; the same command sweeps it anew.")
