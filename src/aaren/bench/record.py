"""BenchRecord: what was measured, with which versions, on which machine, as JSON.

Tables, figures and pages are drawn from records only. A record names no host, user or path. It says whether
the machine was quiet: the CPU time that other processes used before the measurement and while it ran.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import torch

from aaren.engine import record as train_machine
from aaren.engine.clock import Clock, num_cores
from aaren.engine.record import parse_json
from aaren.errors import DataError
from aaren.files.atomic import write_text

Scalar: TypeAlias = str | int | float | bool | None
Setting: TypeAlias = Scalar | list[int] | list[str]
Row: TypeAlias = dict[str, Scalar]  # one measurement: flat, its units in its names
Measured: TypeAlias = tuple[dict[str, Setting], list[Row]]  # what a record says of its run, and its rows
OnStep: TypeAlias = Callable[[int, int, str], None]  # steps done, steps in all, what comes next

BUSY_SHARE = 0.1  # of the CPU time of all cores that this process may use: beyond it, times are void
_BEFORE_SECONDS = 0.5
FORMAT = 1
_NAMED = ("python", "torch", "numba", "aaren")  # older kernels were compiled by Numba
_FIELDS = {"format", "kind", "command", "date", "versions", "machine", "settings", "measurements"}


def machine() -> dict[str, Scalar]:
    """Describe the processor and memory, and with how many threads torch computes; no host or user names."""
    return {**train_machine.machine(), "threads": torch.get_num_threads()}


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchRecord:
    """One run of one benchmark."""

    kind: str  # scan, stream, policy, ...
    command: str  # what to type to run it again
    settings: dict[str, Setting]
    measurements: list[Row]
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: dict[str, str] = field(default_factory=train_machine.versions)
    machine: dict[str, Scalar] = field(default_factory=machine)
    other_work: dict[str, float] | None = None  # shares of the CPU that other processes used; None: not known

    @property
    def is_busy(self) -> bool:
        """Tell whether other processes used so much of the machine that times say nothing."""
        return any(share > BUSY_SHARE for share in (self.other_work or {}).values())

    def write(self, path: Path) -> None:
        """Write as JSON, all at once, so that a killed run leaves no half file."""
        write_text(path, json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    def find(self, **wanted: Scalar) -> Row | None:
        """Return the first measurement with these values, or None."""
        for row in self.measurements:
            if all(row.get(name) == value for name, value in wanted.items()):
                return row
        return None


def number(row: Row, name: str) -> float:
    """Return a numeric field of a measurement; a gap or a text there is a fault of the record.

    >>> number({"median_seconds": 0.5}, "median_seconds")
    0.5
    """
    value = row.get(name)
    if not isinstance(value, int | float):
        raise DataError(f"a measurement needs a number as {name!r}; got {value!r}. Measure again.")
    return float(value)


def read_record(path: Path, *, kind: str | None = None) -> BenchRecord:
    """Read a record back, checking that it is one, and of the kind that is wanted."""
    if not path.is_file():
        raise DataError(f"no benchmark record at {path}. Benchmarks write one with --record {path}.")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not JSON ({error}). Measure again with --record {path}.") from error
    if not isinstance(content, dict) or not content.keys() >= _FIELDS:
        missing = sorted(_FIELDS - (content.keys() if isinstance(content, dict) else set()))
        raise DataError(
            f"{path} is no benchmark record: it lacks {', '.join(missing)}. "
            "Benchmarks write records with --record PATH."
        )
    if content["format"] != FORMAT:
        raise DataError(
            f"{path} has format {content['format']!r}; this version of aaren reads format {FORMAT}. "
            "Read it with the version that wrote it, or measure again."
        )
    if kind is not None and content["kind"] != kind:
        raise DataError(f"{path} holds a record of {content['kind']!r}, not of {kind!r}.")
    shares = content.get("other_work")
    if shares is not None and not (
        isinstance(shares, dict) and all(isinstance(share, int | float) for share in shares.values())
    ):
        raise DataError(f"{path}: other_work must hold shares of the CPU; got {shares!r}. Measure again.")
    return BenchRecord(**{name: content[name] for name in _FIELDS - {"format"}}, other_work=shares)


def counted(number_of: Scalar, thing: str) -> str:
    """Write a number of things.

    >>> counted(1, "thread"), counted(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{number_of} {thing}" + "s" * (number_of != 1)


def describe(record: BenchRecord) -> str:
    """Say in one line where the numbers come from."""
    about = record.machine
    return (
        f"{about['cpu']}, {counted(about['cores'], 'core')}, {counted(about['threads'], 'thread')}; "
        + ", ".join(f"{name} {record.versions[name]}" for name in _NAMED if name in record.versions)
        + f"; {record.date[:10]}; `{record.command}`"
        + (f"; void: {busy_words(record.other_work)}" if record.is_busy else "")
    )


def busy_words(other_work: Mapping[str, float] | None) -> str:
    """Say how busy other processes kept the machine, at worst.

    >>> busy_words({"share_before": 0.02, "share_during": 0.31})
    'other processes used 31% of the CPU'
    """
    return f"other processes used {max((other_work or {}).values(), default=0.0):.0%} of the CPU"


class OtherWork:
    """Watches what other processes do, from its making, which takes half a second, to `shares()`."""

    def __init__(self) -> None:
        self._clock = Clock()
        time.sleep(_BEFORE_SECONDS)
        self.before = self._share()  # None where the system does not tell

    def shares(self) -> dict[str, float] | None:
        """Return what a record keeps: the share that others used before, and from then until now."""
        during = self._share()
        if self.before is None or during is None:
            return None
        return {"share_before": round(self.before, 4), "share_during": round(during, 4)}

    def _share(self) -> float | None:
        """Return the share of our cores' time that others used since the last call."""
        lap = self._clock.lap()
        return None if lap.others is None else min(1.0, lap.others / (num_cores() * lap.wall))
