"""Compare what is on disk with what the catalogue says.

A dataset is `verified` when every certain fact agrees, `differs` when one does not, `broken` when it cannot
be read, `missing` when its files are not there. A user's own file is read the way training would, before
training does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from aaren.datasets.dataset import Dataset, Fact
from aaren.datasets.fetch import on_disk, trust
from aaren.datasets.settings import find_setting, setting_names
from aaren.errors import AarenError, ConfigError, DataError, MissingDependencyError, unknown_name
from aaren.files.archive import content_sha256, plain_name, refuse_pickle

Status: TypeAlias = Literal["verified", "differs", "broken", "missing", "generated"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What verifying one dataset found."""

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
    """Open a dataset and check it."""
    has_files = bool(on_disk(dataset, or_shipped=True))
    if not has_files and not dataset.is_generated:
        return Finding(name=dataset.name, status="missing", measured={})
    try:
        measured = dict(find_setting(dataset.setting).measure(dataset))
    except MissingDependencyError:
        raise  # nothing is wrong with the data
    except AarenError as error:
        return Finding(name=dataset.name, status="broken", measured={}, differences=(str(error),))
    finding = _compare(dataset, measured, has_files=has_files)
    if finding.status == "verified":
        trust(dataset)
    return finding


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


def shape(dataset: Dataset) -> str:
    """Write a dataset's main facts in a few words; a question mark: not certain, or unknown.

    >>> from aaren.datasets.catalogue import lookup
    >>> shape(lookup("ETTh1")), shape(lookup("Handwriting"))
    ('17,420 rows × 7', '150+850 × 3 × 152, 26 classes')
    """
    doubts: list[bool] = []

    def fact(name: str) -> str:
        value = dataset.facts.get(name, "?")
        doubts.append(name in dataset.uncertain)
        return f"{value:,}" if isinstance(value, int) else str(value)

    text = find_setting(dataset.setting).shape(fact, dataset.facts)
    return f"{text}?" if any(doubts) else text


def check_file(
    path: Path,
    *,
    setting: str = "",
    allow_irregular: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Finding:
    """Read a file (or a folder of `.ts` files) strictly and report what is in it; a fault raises."""
    is_guessed, setting = not setting, setting or guess_setting(path)
    if setting not in setting_names():
        raise unknown_name("setting", setting, setting_names())
    if path.is_file():
        refuse_pickle(path)
    try:
        found = find_setting(setting)
        if columns:
            measured = found.check_table(path, columns)
        else:
            measured = found.check_file(path, allow_irregular=allow_irregular)
    except DataError as error:
        if is_guessed and setting == "forecasting":  # a CSV may be either
            raise DataError(f"{error} If it is a table of events, add --as events.") from error
        raise
    return Finding(name=str(path), status="verified", measured=measured)


def guess_setting(path: Path) -> str:
    """Tell a file's setting from its name.

    >>> guess_setting(Path("load.csv.gz")), guess_setting(Path("gestures_TRAIN.ts"))
    ('forecasting', 'classification')
    """
    if path.is_dir():
        return "classification"
    suffix = Path(plain_name(path)).suffix
    for name in setting_names():
        if suffix in find_setting(name).suffixes:
            return name
    raise ConfigError(f"cannot tell what {path.name} is: add --as {', '.join(setting_names())}.")
