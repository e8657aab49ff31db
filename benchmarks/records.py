"""Records of benchmarks: what was measured, on which machine, and whether the code has changed since.

Benchmarks write them as JSON; tables and figures of the documentation are drawn from them. A record names
no host, user or path. It holds a digest of the sources that it measured: where one has changed, it is stale.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

import torch

import aaren
from aaren.engine import record as runs
from aaren.errors import DataError
from aaren.files.atomic import write_text
from aaren.files.strict_json import parse_json

Scalar: TypeAlias = str | int | float | bool | None
Setting: TypeAlias = Scalar | list[int] | list[str]
Row: TypeAlias = dict[str, Scalar]  # one measurement: flat, its units in its names

BUSY_SHARE = 0.1  # of the CPU time of our cores that others may use: beyond it, times are void
PACKAGES = Path(aaren.__file__).parents[1]  # the folder with the package
_FIELDS = {"kind", "command", "settings", "measurements"}
_OPTIONAL = ("date", "versions", "machine", "other_work", "sources")


def machine() -> dict[str, Scalar]:
    """Describe the processor and memory, and with how many threads torch computes; no host or user names."""
    return {**runs.machine(), "threads": torch.get_num_threads()}


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchRecord:
    """One run of one benchmark."""

    kind: str  # scan, stream, policy, ...
    command: str  # what to type to run it again
    settings: dict[str, Setting]
    measurements: list[Row]
    date: str = field(default_factory=runs.now)
    versions: dict[str, str] = field(default_factory=runs.versions)
    machine: dict[str, Scalar] = field(default_factory=machine)
    other_work: dict[str, float] | None = None  # shares of the CPU that other processes used; None: not known
    sources: dict[str, str] | None = None  # digests of the files and folders that were measured

    @property
    def is_busy(self) -> bool:
        """Tell whether other processes used so much of the machine that times say nothing."""
        return any(share > BUSY_SHARE for share in (self.other_work or {}).values())

    @property
    def changed(self) -> list[str]:
        """Return the sources that have changed since; a record that names none is from before 0.3."""
        if self.sources is None:
            return ["the code"]
        return [name for name, before in self.sources.items() if digest(name) != before]

    def write(self, path: Path) -> None:
        """Write as JSON, all at once, so that a killed run leaves no half file."""
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")

    def find(self, **values: Scalar) -> Row | None:
        """Return the first measurement with these values, or None."""
        for row in self.measurements:
            if all(row.get(name) == value for name, value in values.items()):
                return row
        return None


def digest(name: str) -> str:
    """Hash a source file, or all source files below a folder; names as in `aaren/ops`."""
    place, total = PACKAGES / name, hashlib.sha256()
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    for file in files:
        if file.suffix in (".py", ".c", ".h"):
            total.update(f"{file.relative_to(PACKAGES).as_posix()}\n".encode() + file.read_bytes())
    return total.hexdigest()[:12]


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
    """Read a record back, checking that it is one, and of the expected kind."""
    if not path.is_file():
        raise DataError(f"no benchmark record at {path}. Benchmarks write one with --record {path}.")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not JSON ({error}). Measure again with --record {path}.") from error
    if not isinstance(content, dict) or not content.keys() >= _FIELDS:
        raise DataError(f"{path} is no benchmark record. Measure again.")
    if kind is not None and content["kind"] != kind:
        raise DataError(f"{path} holds a record of {content['kind']!r}, not of {kind!r}.")
    return BenchRecord(**{name: content[name] for name in (*_FIELDS, *_OPTIONAL) if name in content})


def describe(record: BenchRecord) -> str:
    """Say in one line where the numbers come from, and whether they still hold."""
    about, versions = record.machine, record.versions
    busiest = max((record.other_work or {}).values(), default=0.0)
    doubts = [f"void: other processes used {busiest:.0%} of the CPU"] * record.is_busy
    doubts += [f"stale: {', '.join(record.changed)} has changed since"] * bool(record.changed)
    return "; ".join(
        [
            f"{about['cpu']}, {about['cores']} cores, torch with {about['threads']} threads",
            ", ".join(
                f"{name} {versions[name]}" for name in ("python", "torch", "aaren") if name in versions
            ),
            record.date[:10],
            f"`{record.command}`",
            *(f"**{doubt}**" for doubt in doubts),
        ]
    )
