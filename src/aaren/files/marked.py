"""The generated part of a page: what stands between two marks is replaced, the rest of the page stays."""

from pathlib import Path

from aaren.errors import DataError
from aaren.files.atomic import write_bytes


def read_marked(path: Path, begin: str, end: str, *, option: str) -> str:
    """Return what stands between the marks of a page.

    Args:
        path: A text in UTF-8 that has both marks once, in this order.
        begin: The mark above the generated part.
        end: The mark below it.
        option: What the user chose the page with, for messages: "--readme".
    """
    return _split(path, begin, end, option)[1]


def write_marked(path: Path, begin: str, end: str, body: str, *, option: str) -> bool:
    """Replace what stands between the marks of a page; tells whether anything changed."""
    head, old, tail = _split(path, begin, end, option)
    try:
        if body != old:
            write_bytes(path, f"{head}{begin}{body}{end}{tail}".encode())
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}.") from error
    return body != old


def _split(path: Path, begin: str, end: str, option: str) -> tuple[str, str, str]:
    """Return what is above the first mark, between the two, and below the second."""
    try:
        text = path.read_bytes().decode()  # line ends stay as they are
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{option} needs a text in UTF-8; {path} cannot be read: {error}.") from error
    head, _, rest = text.partition(begin)
    body, mark, tail = rest.partition(end)
    if not mark or text.count(begin) != 1 or text.count(end) != 1:
        raise DataError(
            f"{path} has no place for what {option} writes: put these two lines there, once each and in "
            f"this order: {begin.strip()} and {end.strip()}"
        )
    return head, body, tail
