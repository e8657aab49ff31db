"""The generated part of a page: what stands between two marks is replaced, the rest of the page stays."""

from pathlib import Path

from aaren.errors import DataError
from aaren.files.atomic import write_text


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
    if body == old:
        return False
    try:
        write_text(path, f"{head}{body}{tail}")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}.") from error
    return True


def _split(path: Path, begin: str, end: str, option: str) -> tuple[str, str, str]:
    """Return the page up to and with the first mark, the generated part, and the rest."""
    wanted = f"{begin.strip()} and {end.strip()}"
    if not path.is_file():
        raise DataError(f"no file {path}: {option} needs one that holds the lines {wanted}.")
    try:
        with path.open(encoding="utf-8", newline="") as file:  # line ends stay as they are
            text = file.read()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8: {option} rewrites Markdown.") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from error
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise DataError(
            f"{path} has no place for what {option} writes: put these two lines there, once each and in "
            f"this order: {wanted}"
        )
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[:start], text[start:stop], text[stop:]
