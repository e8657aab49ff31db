"""The generated part of a page: replaced between its marks, and nothing else of the page."""

from pathlib import Path

from aaren.files.marked import read_marked, write_marked

BEGIN, END = "<!-- begin -->\n", "<!-- end -->"


def write(path: Path, body: str) -> bool:
    return write_marked(path, BEGIN, END, body, option="--page")


def test_only_what_is_between_the_marks_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_bytes(b"before\r\n<!-- begin -->\nold\n<!-- end -->\nafter \xc3\xa9")
    assert read_marked(page, BEGIN, END, option="--page") == "old\n"
    assert write(page, "new\n")
    assert page.read_bytes() == b"before\r\n<!-- begin -->\nnew\n<!-- end -->\nafter \xc3\xa9"
    assert not write(page, "new\n")
