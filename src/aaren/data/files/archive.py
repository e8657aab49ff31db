"""Take named files out of a zip archive, and nothing else.

An archive that names a place outside its folder, that holds links, that swells beyond its limit or whose
checksums do not hold is refused as a whole, before or while it is read. Knows nothing of datasets.
"""

import shutil
import stat
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from aaren.data.files.atomic import replacing
from aaren.errors import DataError

MAX_RATIO = 200  # text of numbers shrinks 3- to 20-fold
LIMIT_BYTES = 4_000_000_000


def extract(
    archive: Path, wanted: Sequence[str], folder: Path, *, limit_bytes: int = LIMIT_BYTES
) -> tuple[Path, ...]:
    """Unpack the members called `wanted`, wherever they lie in the archive, into `folder`; all or none."""
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            _refuse_dangers(archive, members, limit_bytes)
            chosen = [_choose(archive, members, name) for name in wanted]
            staged = [folder / f".{name}.unpacking" for name in wanted]
            try:
                for member, target in zip(chosen, staged, strict=True):
                    _copy(opened, member, target)
                for name, target in zip(wanted, staged, strict=True):
                    with replacing(folder / name) as temporary:
                        target.replace(temporary)
            finally:
                for target in staged:
                    target.unlink(missing_ok=True)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(
            f"{archive} is truncated or corrupted ({error}). Delete it and get it again."
        ) from error
    return tuple(folder / name for name in wanted)


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


def _copy(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # zipfile reads no more than the member declares and then compares its checksum, so a size cannot be a
    # lie.
    with opened.open(member) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
