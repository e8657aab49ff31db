"""Put what a record says into a documentation page, between two marks; the rest of the page stays."""

from pathlib import Path

from aaren.errors import DataError


def begin_mark(kind: str) -> str:
    """Return the line above the generated part."""
    return f"<!-- begin: written by aaren bench {kind} --page; do not edit -->"


def end_mark(kind: str) -> str:
    """Return the line below it."""
    return f"<!-- end: aaren bench {kind} -->"


def read_generated(path: Path, kind: str) -> str:
    """Return what stands between the marks."""
    _, body, _ = _split(path, kind)
    return body


def write_generated(path: Path, kind: str, body: str) -> None:
    """Replace what stands between the marks."""
    head, _, tail = _split(path, kind)
    path.write_text(f"{head}{body}{tail}", encoding="utf-8")


def _split(path: Path, kind: str) -> tuple[str, str, str]:
    """Return the page up to and with the first mark, the generated part, and the rest."""
    if not path.is_file():
        raise DataError(f"no page at {path}; --page needs an existing Markdown file with the marks in it.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8; --page rewrites Markdown.") from error
    begin, end = begin_mark(kind) + "\n", end_mark(kind)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise DataError(
            f"{path} must hold these two lines, once each and in this order: {begin.strip()} and {end}"
        )
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[:start], text[start:stop], text[stop:]
