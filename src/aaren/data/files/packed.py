"""Read a file that may be plain, `.gz` or `.xz`, and refuse what is not safe to read.

Gives bytes and their checksum; knows nothing of the formats inside, except that a pickle is never opened.
"""

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from aaren.errors import DataError

LIMIT_BYTES = (
    4_000_000_000  # the largest registered file unpacks to less; more is an archive bomb or a mistake
)
_CHUNK = 1 << 20
_PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth")


def refuse_pickle(path: Path) -> None:
    """Raise for a file whose name or first bytes are those of a pickle: opening one can run any program."""
    name = path.name.lower()
    is_named = any(name.endswith(suffix + packing) for suffix in _PICKLES for packing in ("", ".gz", ".xz"))
    with path.open("rb") as handle:
        head = handle.read(2)
    if is_named or (len(head) == 2 and head[0] == 0x80 and head[1] <= 5):
        raise DataError(
            f"{path} is a pickle: reading one can run any program, so it is refused. "
            f"Save the arrays as .npz, .csv or .parquet and use that file."
        )


def read_bytes(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """Read the unpacked content of a file."""
    refuse_pickle(path)
    return b"".join(_chunks(path, limit_bytes))


def content_sha256(path: Path) -> str:
    """Compute the checksum of the unpacked content, so that plain and compressed copies agree."""
    digest = hashlib.sha256()
    for chunk in _chunks(path, LIMIT_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(path: Path, limit_bytes: int) -> Iterator[bytes]:
    total = 0
    try:
        with _open(path) as handle:
            while chunk := handle.read(_CHUNK):
                total += len(chunk)
                if total > limit_bytes:
                    raise DataError(
                        f"{path} unpacks to more than {limit_bytes:,} bytes: refused as an archive bomb. "
                        f"If it is real, unpack it yourself and keep the part you need."
                    )
                yield chunk
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path} is truncated or corrupted ({error}). Delete it and get it again.") from error


def plain_name(path: Path) -> str:
    """Give the file name without its compression.

    >>> plain_name(Path("a/ETTh1.csv.gz"))
    'ETTh1.csv'
    """
    return path.stem if path.suffix in (".gz", ".xz") else path.name


def _open(path: Path) -> BinaryIO | gzip.GzipFile | lzma.LZMAFile:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    return path.open("rb")
