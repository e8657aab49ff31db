"""Compare what is on disk with what the registry says, and remember what was found.

A dataset is `verified` when every certain fact agrees, `differs` when one does not, `broken` when it cannot
be read, `missing` when its files are not there. A finding is remembered until the files change. Knows no
format: each setting's module measures its own.
"""

import hashlib
import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from aaren.data.dataset import Dataset, Fact
from aaren.data.files import folders
from aaren.data.files.atomic import replacing
from aaren.data.files.packed import content_sha256
from aaren.data.source import on_disk, trust
from aaren.errors import AarenError, MissingDependencyError

Status: TypeAlias = Literal["verified", "differs", "broken", "missing", "generated"]


class Measurer(Protocol):
    """What a setting's module offers."""

    def measure(self, dataset: Dataset) -> Mapping[str, Fact]:
        """Open the files of a dataset and return the facts found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What a look at one dataset found."""

    name: str
    status: Status
    measured: Mapping[str, Fact]
    differences: tuple[str, ...] = ()  # certain facts that do not hold, or the error
    remarks: tuple[str, ...] = ()  # uncertain facts that came out otherwise, unlisted bytes


def checksums(dataset: Dataset) -> dict[str, str]:
    """Compute the checksum of each file's unpacked content, for the record of a run."""
    paths = on_disk(dataset, or_shipped=True)
    return {file: content_sha256(path) for file, path in zip(dataset.files, paths, strict=bool(paths))}


def verify(dataset: Dataset) -> Finding:
    """Open a dataset and check it; the finding is remembered."""
    paths = on_disk(dataset, or_shipped=True)
    if not paths and not dataset.is_generated:
        return Finding(name=dataset.name, status="missing", measured={})
    module: Measurer = importlib.import_module(f"aaren.data.{dataset.setting}")
    try:
        measured = dict(module.measure(dataset))
    except MissingDependencyError:
        raise  # nothing is wrong with the data
    except AarenError as error:
        finding = Finding(name=dataset.name, status="broken", measured={}, differences=(str(error),))
    else:
        finding = _compare(dataset, measured, has_files=bool(paths))
    if paths:
        _remember(dataset, paths, finding)
    if finding.status == "verified":
        trust(dataset)
    return finding


def recall(dataset: Dataset) -> Finding | None:
    """Return the last finding if the files are still the same, else None."""
    paths = on_disk(dataset, or_shipped=True)
    try:
        stored = json.loads(_record(dataset, paths).read_text(encoding="utf-8"))
        return Finding(
            name=stored["name"],
            status=stored["status"],
            measured=stored["measured"],
            differences=tuple(stored["differences"]),
            remarks=tuple(stored["remarks"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compare(dataset: Dataset, measured: Mapping[str, Fact], *, has_files: bool) -> Finding:
    differences: list[str] = []
    remarks: list[str] = []
    for name, expected in dataset.facts.items():
        if name not in measured:
            remarks.append(f"{name} was not measured")
        elif measured[name] != expected:
            text = f"{name}: expected {expected}, found {measured[name]}"
            (remarks if name in dataset.uncertain else differences).append(text)
    if has_files and dataset.sha256 and checksums(dataset) != dict(dataset.sha256):
        remarks.append("its bytes are not those of the copy the registry knows")
    status: Status = "differs" if differences else "verified" if has_files else "generated"
    return Finding(
        name=dataset.name,
        status=status,
        measured=measured,
        differences=tuple(differences),
        remarks=tuple(remarks),
    )


def _remember(dataset: Dataset, paths: tuple[Path, ...], finding: Finding) -> None:
    try:
        with replacing(_record(dataset, paths)) as temporary:
            temporary.write_text(json.dumps(asdict(finding), indent=1), encoding="utf-8")
    except OSError:
        pass  # a closed disk: the next `aaren data list` does not know, and nothing else is lost


def _record(dataset: Dataset, paths: tuple[Path, ...]) -> Path:
    described = [repr(dataset)]  # the row itself: a changed fact asks for a new look
    for path in paths:
        status = path.stat()
        # The time of change of the entry itself: that of its content can be set to anything.
        described.append(f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}|{status.st_ctime_ns}")
    key = hashlib.sha256(os.fsencode("\n".join(described))).hexdigest()[:16]
    return folders.cache_folder() / "verified" / f"{dataset.name}-{key}.json"
