"""`checksums.json`: the SHA-256 of every file that something saved consists of, compared before it is used.

It is written last, so that an interrupted save is detected. Files that are not listed are no part of what was
saved: one that an earlier save left behind is ignored.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from aaren.errors import DataError, UnwritableError
from aaren.files.atomic import replacing

CHECKSUMS_FILE = "checksums.json"
FORMAT_VERSION = 1


def write_files(folder: Path, files: Mapping[str, bytes], *, others: Iterable[str] = ()) -> None:
    """Write files and the checksums of all of them; all are on the disk before one replaces an older one.

    Args:
        folder: made if need be.
        files: content by name.
        others: names of files that are there already and belong to it too, such as "model/config.json".
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise UnwritableError(
            f"cannot save into the folder {str(folder)!r}: {error}. Name another."
        ) from error
    whole = {**files, **{name: (folder / name).read_bytes() for name in others}}
    with ExitStack() as stack:  # left in reverse: the checksums replace theirs last
        for name, content in {CHECKSUMS_FILE: checksums_file(whole), **files}.items():
            stack.enter_context(replacing(folder / name)).write_bytes(content)


def checksums_file(files: Mapping[str, bytes]) -> bytes:
    """Return the content of `checksums.json` for some files, by their names in its folder."""
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    described = {"format_version": FORMAT_VERSION, "sha256": checksums, "digest": _digest(checksums)}
    return (json.dumps(described, indent=1) + "\n").encode()


def read_files(folder: Path, *required: str) -> dict[str, bytes]:
    """Return the content of every file that `write_files` listed, after comparing all of them.

    Args:
        folder: which `write_files` wrote.
        *required: names of files that must be among them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     write_files(Path(name), {"scales.json": b"[1.0]"})
    ...     read_files(Path(name))
    {'scales.json': b'[1.0]'}
    """
    checksums = _read_checksums(folder / CHECKSUMS_FILE)
    files = {}
    for name, checksum in checksums.items():
        try:
            files[name] = (folder / name).read_bytes()
        except OSError as error:
            raise DataError(f"{folder / name} cannot be read: {error.strerror or error}.") from error
        if hashlib.sha256(files[name]).hexdigest() != checksum:
            raise DataError(
                f"{folder / name} is damaged or was edited: its checksum is not that in {CHECKSUMS_FILE}. "
                f"Restore the folder from a backup, or save again."
            )
    missing = [name for name in required if name not in files]
    if missing:
        raise DataError(f"{folder}: {missing[0]} is missing: saving was interrupted. Save again.")
    return files


def _read_checksums(path: Path) -> dict[str, str]:
    try:
        described = json.loads(path.read_bytes())
        checksums: dict[str, str] = described["sha256"]
        version, is_whole = described["format_version"], described["digest"] == _digest(checksums)
    except FileNotFoundError as error:
        raise DataError(
            f"{path.parent}: {path.name} is missing. The folder was saved by aaren before 0.3, or saving was "
            f"interrupted: save again."
        ) from error
    except (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}). Save again.") from error
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path}: format version {version}; this aaren reads {FORMAT_VERSION}. Upgrade: pip install -U "
            f"aaren."
        )
    names = [PurePosixPath(name) for name in checksums]
    if not is_whole or any(name.is_absolute() or ".." in name.parts for name in names):
        raise DataError(f"{path} is damaged or was edited. Restore the folder from a backup, or save again.")
    return checksums


def _digest(checksums: Mapping[str, str]) -> str:
    """Return one checksum over everything."""
    lines = (f"{checksum}  {name}\n" for name, checksum in sorted(checksums.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
