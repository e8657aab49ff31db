"""Read a file, plain, `.gz` or `.xz`, with its checksum; take named files out of a zip archive.

What is not safe to read is refused: pickles, and archives that unpack beyond their limit, that name a path
outside their folder, that hold links, or whose checksums differ.
"""

import gzip
import hashlib
import lzma
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from aaren.errors import AarenError, DataError
from aaren.files.atomic import replacing, write_text

LIMIT_BYTES = 4_000_000_000  # the largest file of the catalogue unpacks to less; more is an archive bomb
FREE_BYTES = 64_000_000  # so much may come out of an archive of any size: constant columns shrink 1000-fold
MAX_RATIO = 200  # beyond that; text of numbers shrinks 3- to 20-fold
_CHUNK = 1 << 20
_PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth")
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
    """Read the unpacked content of a file and its checksum, in one go."""
    refuse_pickle(path)
    digest = hashlib.sha256()
    chunks = []
    for chunk in _chunks(path, limit_bytes):
        digest.update(chunk)
        chunks.append(chunk)
    content = Content(b"".join(chunks), digest.hexdigest())
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


def require_file(path: Path) -> None:
    """Raise unless there is a file, or a pipe, of this name."""
    if os.path.isdir(path):  # noqa: PTH112  # of names that no disk can hold, pathlib raises
        raise DataError(f"{path} is a folder; a file is needed.")
    if not os.path.exists(path):  # noqa: PTH110  # as above
        raise DataError(f"{path}: no such file.")


def refuse_pickle(path: Path) -> None:
    """Raise for a file whose name or first bytes are those of a pickle: opening one can run any program."""
    require_file(path)
    name = path.name.lower()
    is_named = any(name.endswith(suffix + packing) for suffix in _PICKLES for packing in ("", ".gz", ".xz"))
    head = b""
    if path.is_file():  # what is no file, such as a pipe, can be read only once
        try:
            with path.open("rb") as handle:
                head = handle.read(2)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if is_named or (len(head) == 2 and head[0] == 0x80 and head[1] <= 5):
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


def require_size(path: Path | str, declared: int, packed: int) -> None:
    """Raise if `packed` bytes claim an implausible unpacked size, before memory is allocated."""
    if declared > LIMIT_BYTES or declared > max(FREE_BYTES, MAX_RATIO * packed):
        raise DataError(
            f"{path} claims to hold {declared:,} bytes in {packed:,}, more than {MAX_RATIO} times as much or "
            f"than {LIMIT_BYTES:,}: refused as an archive bomb. If it is real, keep the part that you need."
        )


def plain_name(path: Path) -> str:
    """Give the file name without its compression.

    >>> plain_name(Path("a/ETTh1.csv.gz"))
    'ETTh1.csv'
    """
    return path.stem if path.suffix in (".gz", ".xz") else path.name


def extract(
    archive: Path, wanted: Sequence[str], folder: Path, *, limit_bytes: int = LIMIT_BYTES
) -> tuple[Path, ...]:
    """Unpack the members called `wanted`, wherever they lie in the archive, into `folder`; all or none."""
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            _refuse_dangers(archive, members, limit_bytes)
            chosen = [_choose(archive, members, name) for name in wanted]
            with ExitStack() as stack:  # at its end all get their names, or after an error none does
                for name, member in zip(wanted, chosen, strict=True):
                    temporary = stack.enter_context(replacing(folder / name))
                    # It reads no more than the member declares and then compares its checksum, so a size
                    # cannot be a lie.
                    with opened.open(member) as source, temporary.open("wb") as sink:
                        shutil.copyfileobj(source, sink, _CHUNK)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(
            f"{archive} is truncated or corrupted ({error}). Delete it and get it again."
        ) from error
    return tuple(folder / name for name in wanted)


def _record(path: Path) -> Path:
    return path.with_name(plain_name(path) + ".sha256")


def _chunks(path: Path, limit_bytes: int) -> Iterator[bytes]:
    require_file(path)
    total = 0
    try:
        is_packed = path.suffix in (".gz", ".xz")
        allowed = max(FREE_BYTES, MAX_RATIO * path.stat().st_size) if is_packed else limit_bytes
        with _open(path) as handle:
            while chunk := handle.read(_CHUNK):
                total += len(chunk)
                if total > min(limit_bytes, allowed):
                    raise DataError(
                        f"{path} unpacks to more than {min(limit_bytes, allowed):,} bytes: refused as an "
                        f"archive bomb. If it is real, unpack it yourself and keep the part you need."
                    )
                yield chunk
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path} is truncated or corrupted ({error}). Delete it and get it again.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def _open(path: Path) -> BinaryIO | gzip.GzipFile | lzma.LZMAFile:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    return path.open("rb")


def _refuse_dangers(archive: Path, members: Sequence[zipfile.ZipInfo], limit_bytes: int) -> None:
    for member in members:
        name = PurePosixPath(member.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in "".join(name.parts[:1]):
            raise DataError(
                f"{archive}: member {member.filename!r} would be written outside its folder: refused."
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise DataError(f"{archive}: member {member.filename!r} is a link: refused.")
        if member.flag_bits & 1:
            raise DataError(f"{archive}: member {member.filename!r} is encrypted: refused.")
        if member.file_size > MAX_RATIO * max(member.compress_size, 1) and member.file_size > 1_000_000:
            raise DataError(
                f"{archive}: member {member.filename!r} swells from {member.compress_size:,} to "
                f"{member.file_size:,} bytes: refused as an archive bomb."
            )
    total = sum(member.file_size for member in members)
    if total > limit_bytes:
        raise DataError(
            f"{archive} unpacks to {total:,} bytes, more than {limit_bytes:,}: refused as an archive bomb."
        )


def _choose(archive: Path, members: Sequence[zipfile.ZipInfo], name: str) -> zipfile.ZipInfo:
    found = [member for member in members if PurePosixPath(member.filename).name.lower() == name.lower()]
    # Macintosh archives carry shadows of their files under __MACOSX.
    found = [member for member in found if not member.filename.startswith("__MACOSX/")]
    if not found:
        inside = ", ".join(sorted(member.filename for member in members)[:8]) or "nothing"
        raise DataError(f"{archive} holds no {name!r}; it holds {inside}.")
    return min(found, key=lambda member: len(member.filename))
