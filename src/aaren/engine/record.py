"""RunRecord: what was run, on what, and what came out, as JSON. Every number in a table comes from one.

The same record is `record.json` in the folder of a run and a line of `runs.jsonl` among results.

Strict JSON: a number that is not finite is null. Of the machine it tells versions and processor, but no host,
user or path.
"""

import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from types import UnionType
from typing import Any, Literal, cast, get_args, get_origin

import torch

from aaren.engine.experiment import Json
from aaren.errors import DataError
from aaren.files.atomic import write_text
from aaren.files.strict_json import parse_json, strict_json
from aaren.version import __version__

FORMAT = 2
PACKAGES = ("torch", "numpy", "safetensors", "gymnasium", "mujoco", "aeon", "scikit-learn", "pandas")
KIND = "run"
MOST_POINTS = 150  # of a learning curve in a record
_ENGINE_BEFORE = ("accumulate", "autocast", "compile")  # keys of older configs; no run had set them


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Return the versions of what results depend on, as far as it is installed.

    >>> sorted(versions())[:2]
    ['aaren', 'aeon']
    """
    installed = {package: _installed(package) for package in PACKAGES}
    return {
        "aaren": __version__,
        "python": platform.python_version(),
        **{package: version for package, version in installed.items() if version is not None},
    }


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, str | int | None]:
    """Describe the processor and memory."""
    return {
        "cpu": _cpu_model(),
        "cores": num_cores(),
        "memory_bytes": _memory_bytes(),
        "platform": f"{platform.system()} {platform.machine()}",
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One run, finished or failed."""

    status: Literal["finished", "failed"]
    setting: str
    profile: str
    seed: int
    cell: dict[str, str | int]  # where in a table it stands: dataset, model, horizon ...
    changed: list[str]  # keys that were set by hand on top of the profile
    config: dict[str, Json]
    command: str  # what to type to run it again
    # Of "test", and "best" and "last" of the validation part.
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    reports: list[str]  # which of them are the published numbers: "test.mse"
    parameters: int = 0
    updates: int = 0
    epochs: float = 0.0
    ended_by: str = "error"  # or "max_updates", "patience", "request" (stopped early)
    best_update: int | None = None
    resumed: int = 0
    # Wall time by account, and `cpu`; in older records also `others`, the CPU time of other processes.
    seconds: dict[str, float] = field(default_factory=dict)
    curve: list[dict[str, Json]] = field(default_factory=list)  # see `thin_curve`
    figures: dict[str, Json] = field(default_factory=dict)  # see `Experiment.figures`
    sweeps: dict[str, dict[str, Json]] = field(default_factory=dict)  # by key; see `sweep_run`
    preprocessing: dict[str, Json] = field(default_factory=dict)  # see `Experiment.preprocessing`
    data: dict[str, str] = field(default_factory=dict)  # sha256 of every data file
    facts: dict[str, Json] = field(default_factory=dict)
    error: str | None = None
    threads: int = 0
    date: str = field(default_factory=now)
    versions: dict[str, str] = field(default_factory=versions)
    higher_is_better: list[str] = field(default_factory=list)  # of the reports
    protocol: int = 1  # see `Setting.protocol`
    machine: Mapping[str, Json] = field(default_factory=machine)
    # What `benchmarks/identity.py` computed for this model and setting with the run's code; None: not known.
    identity: str | None = None

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return strict_json({"format": FORMAT, "kind": KIND, **asdict(self)})

    def write(self, path: Path) -> None:
        """Write as JSON, a line per field, all at once."""
        fields = {"format": FORMAT, "kind": KIND, **asdict(self)}
        lines = (f" {strict_json(name)}: {strict_json(value)}" for name, value in fields.items())
        write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")

    def metric(self, name: str) -> float:
        """Return a number by its place, such as "test.mse"; NaN if it was not finite."""
        group, _, key = name.partition(".")
        try:
            value = cast("float | None", self.metrics[group][key])
        except KeyError as error:
            known = [f"{part}.{metric}" for part, values in self.metrics.items() for metric in values]
            raise DataError(
                f"the record has no {name!r}; it has {', '.join(known) or 'no metrics'}."
            ) from error
        return math.nan if value is None else value


def read_record(path: Path) -> RunRecord:
    """Read the record of a run from its folder."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(
            f"no record at {path}: the run has not finished. Resume it with the command that began it."
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is not UTF-8: something else wrote it.") from error
    try:
        return parse_record(text)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def parse_record(text: str) -> RunRecord:
    """Build a record from its JSON, checking that it is one that this version understands."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise DataError("it is not JSON: cut off, or something else wrote it.") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise DataError("it is no record of a run: something else wrote it.")
    if content.get("format") != FORMAT:
        raise DataError(
            f"it has format {content.get('format')!r}; this version of aaren reads format {FORMAT}. "
            "Read it with the version that wrote it."
        )
    hints = {item.name: item.type for item in fields(RunRecord)}
    missing = sorted(hints.keys() - content.keys() - {"identity"})
    if missing:
        raise DataError(f"it is an incomplete record: it lacks {', '.join(missing)}.")
    values = {name: content[name] for name in hints if name in content}
    strange = sorted(name for name, value in values.items() if not _fits(value, hints[name]))
    if not strange:
        # A metric that was not finite is null; nothing else of these is.
        strange += ["epochs"] * (values["epochs"] is None)
        strange += ["seconds"] * (None in values["seconds"].values())
        strange += ["protocol"] * (values["protocol"] < 1)
        strange += ["cell"] * (not isinstance(values["cell"].get("horizon", 0), int))
    if strange:
        raise DataError(f"it is no valid record: {', '.join(strange)} has the wrong type or value.")
    engine = values["config"].get("engine")
    if isinstance(engine, dict):
        values["config"]["engine"] = {
            key: value for key, value in engine.items() if key not in _ENGINE_BEFORE
        }
    return RunRecord(**values)


def thin_curve(
    evaluations: Sequence[Mapping[str, Any]], reports: Sequence[str], *, most: int = MOST_POINTS
) -> list[dict[str, Json]]:
    """Return what a record keeps of a learning curve: at most so many points, evenly, and the last.

    A point has the update, the training loss and the reported numbers of the validation part, each to six
    digits.

    >>> curve = [{"update": n, "loss": n / 3, "validation": {"mse": 1.0, "bias": 0.1}} for n in range(5)]
    >>> [point["update"] for point in thin_curve(curve, ["test.mse"], most=3)]
    [0, 2, 4]
    >>> thin_curve(curve, ["test.mse"])[1]
    {'update': 1, 'loss': 0.333333, 'validation': {'mse': 1.0}}
    """
    step = max(1, -(-(len(evaluations) - 1) // (most - 1)))
    points = list(evaluations[::step])
    if evaluations and points[-1] is not evaluations[-1]:
        points.append(evaluations[-1])
    names = {report.rpartition(".")[2] for report in reports}
    return [
        {
            "update": point["update"],
            "loss": _six_digits(point["loss"]),
            "validation": {
                name: _six_digits(value) for name, value in point["validation"].items() if name in names
            },
        }
        for point in points
    ]


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def _fits(value: object, hint: object) -> bool:
    """Compare a value from JSON with the type of a field; a number that was not finite is null."""
    origin, inside = get_origin(hint), get_args(hint)
    if isinstance(hint, str):
        return True  # Json, which is anything
    if origin is UnionType:
        return any(_fits(value, one) for one in inside)
    if origin is Literal:
        return value in inside
    if origin is list:
        return isinstance(value, list) and all(_fits(item, inside[0]) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(item, inside[1]) for item in value.values())
    if hint is float:
        return value is None or isinstance(value, int | float)
    return isinstance(value, cast("type", hint))


@cache  # a look-up reads files, and a worker writes many records
def _installed(package: str) -> str | None:
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory_bytes() -> int | None:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
