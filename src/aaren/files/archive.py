"""Read a file, plain, `.gz` or `.xz`, with its checksum; take named files out of a zip archive.

Pickles, and what unpacks beyond its limit, are refused.
"""

import gzip
import hashlib
import lzma
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from aaren.errors import AarenError, DataError
from aaren.files.atomic import replacing, write_text

LIMIT_BYTES = 4_000_000_000  # the largest file of the catalogue unpacks to less; more is an archive bomb
FREE_BYTES = 64_000_000  # so much may come out of an archive of any size: constant columns shrink 1000-fold
MAX_RATIO = 200  # beyond that; text of numbers shrinks 3- to 20-fold
_CHUNK = 1 << 20
_PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth")
_OPENERS: Mapping[str, Callable[[Path], IO[bytes]]] = {".gz": gzip.open, ".xz": lzma.open}  # type: ignore[dict-item]  # read only
_DAMAGE = (
    EOFError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
    RuntimeError,
)  # encrypted
_noted: ContextVar[dict[str, str] | None] = ContextVar("checksums of the files read", default=None)


class Content(NamedTuple):
    """What is in a file, unpacked, and its checksum: plain and compressed copies agree."""

    data: bytes
    sha256: str


@contextmanager
def noting_checksums() -> Iterator[dict[str, str]]:
    """Give the checksums, by plain file name, of all that is read meanwhile: of the bytes that are parsed.

    >>> with noting_checksums() as checksums:
    ...     _ = read_bytes(Path(__file__))
    >>> list(checksums) == [Path(__file__).name]
    True
    """
    checksums: dict[str, str] = {}
    token = _noted.set(checksums)
    try:
        yield checksums
    finally:
        _noted.reset(token)


def read(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> Content:
    """Read the unpacked content of a file, and compare its checksum with the one beside it."""
    refuse_pickle(path)
    data = b"".join(_chunks(path, limit_bytes))
    content = Content(data, hashlib.sha256(data).hexdigest())
    expected = recorded_checksums(path).get(plain_name(path), content.sha256)
    if content.sha256 != expected:
        raise DataError(
            f"{path} has changed: its content has sha256 {content.sha256}, but {_record(path).name} beside "
            f"it says {expected}. Get it again; if you trust it as it is, delete {_record(path)}."
        )
    noted = _noted.get()
    if noted is not None:
        noted[plain_name(path)] = content.sha256
    return content


def read_bytes(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """Read the unpacked content of a file."""
    return read(path, limit_bytes=limit_bytes).data


def content_sha256(path: Path) -> str:
    """Compute the checksum of the unpacked content, so that plain and compressed copies agree."""
    digest = hashlib.sha256()
    for chunk in _chunks(path, LIMIT_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Compute the checksum of a file as it is."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def recorded_checksums(path: Path) -> dict[str, str]:
    """Return the checksums, by file name, that lie beside a file as `NAME.sha256`, if there are any."""
    try:
        lines = _record(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    pairs = (line.split(maxsplit=1) for line in lines)
    return {pair[1].strip(): pair[0].lower() for pair in pairs if len(pair) == 2 and len(pair[0]) == 64}


def record_checksums(path: Path, checksums: Mapping[str, str]) -> None:
    """Write checksums beside a file, its own among them: from now on it is compared whenever it is read."""
    write_text(_record(path), "".join(f"{digest}  {name}\n" for name, digest in checksums.items()))


def refuse_pickle(path: Path) -> None:
    """Raise for a file whose name or first bytes are those of a pickle: opening one can run any program."""
    if os.path.isdir(path):  # noqa: PTH112  # of names that no disk can hold, pathlib raises
        raise DataError(f"{path} is a folder; a file is needed.")
    if not os.path.exists(path):  # noqa: PTH110  # as above
        raise DataError(f"{path}: no such file.")
    head = b""
    if path.is_file():  # what is no file, such as a pipe, can be read only once
        try:
            with path.open("rb") as handle:
                head = handle.read(2)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if Path(plain_name(path).lower()).suffix in _PICKLES or (head[:1] == b"\x80" and head[1:] <= b"\x05"):
        raise DataError(
            f"{path} is a pickle: reading one can run any program, so it is refused. "
            f"Save the arrays as .npz, .csv or .parquet and use that file."
        )


@contextmanager
def parsing(path: Path | str, what: str, *, cure: str = "Get or write it again.") -> Iterator[None]:
    """Report any error of a third-party parser as one line instead of a traceback."""
    try:
        yield
    except AarenError:
        raise
    except MemoryError as error:
        raise DataError(f"{path}: not {what} that fits into memory. {cure}") from error
    except Exception as error:  # parsers raise what they please: struct.error, KeyError, RecursionError ...
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{path}: not {what} ({reason}). {cure}") from error


def require_size(path: Path | str, declared: int, packed: int, *, limit_bytes: int = LIMIT_BYTES) -> None:
    """Raise if `packed` bytes claim an implausible unpacked size, before memory is allocated."""
    most = min(limit_bytes, max(FREE_BYTES, MAX_RATIO * packed))
    if declared > most:
        raise DataError(
            f"{path} unpacks to {declared:,} bytes or more, beyond {most:,}: refused as an archive bomb. If "
            f"it is real, keep the part that you need."
        )


def plain_name(path: Path) -> str:
    """Give the file name without its compression.

    >>> plain_name(Path("a/ETTh1.csv.gz"))
    'ETTh1.csv'
    """
    return path.stem if path.suffix in _OPENERS else path.name


def extract(
    archive: Path, wanted: Sequence[str], folder: Path, *, limit_bytes: int = LIMIT_BYTES
) -> tuple[Path, ...]:
    """Unpack the members called `wanted`, wherever they lie in the archive, into `folder`; all or none."""
    try:
        with (
            zipfile.ZipFile(archive) as opened,
            ExitStack() as stack,
        ):  # at its end all get their names, or none
            names = {name: _member_name(archive, opened.namelist(), name) for name in wanted}
            sizes = sum(opened.getinfo(name).file_size for name in names.values())
            require_size(archive, sizes, archive.stat().st_size, limit_bytes=limit_bytes)
            for name, member in names.items():
                temporary = stack.enter_context(replacing(folder / name))
                # It reads no more than the member declares, and then compares its checksum.
                with opened.open(member) as source, temporary.open("wb") as sink:
                    shutil.copyfileobj(source, sink, _CHUNK)
    except _DAMAGE as error:
        raise DataError(
            f"{archive} is truncated or corrupted ({error}). Delete it and get it again."
        ) from error
    return tuple(folder / name for name in wanted)


def _member_name(archive: Path, members: Sequence[str], name: str) -> str:
    # Macintosh archives carry shadows of their files under __MACOSX.
    matches = [
        member
        for member in members
        if PurePosixPath(member).name.lower() == name.lower() and not member.startswith("__MACOSX/")
    ]
    if not matches:
        raise DataError(
            f"{archive} holds no {name!r}; it holds {', '.join(sorted(members)[:8]) or 'nothing'}."
        )
    return min(matches, key=len)


def _record(path: Path) -> Path:
    return path.with_name(plain_name(path) + ".sha256")


def _chunks(path: Path, limit_bytes: int) -> Iterator[bytes]:
    total, opener = 0, _OPENERS.get(path.suffix)
    try:
        with path.open("rb") if opener is None else opener(path) as handle:
            packed = path.stat().st_size
            while chunk := handle.read(_CHUNK):
                total += len(chunk)
                require_size(path, total, packed if opener else total, limit_bytes=limit_bytes)
                yield chunk
    except _DAMAGE as error:
        raise DataError(f"{path} is truncated or corrupted ({error}). Delete it and get it again.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
