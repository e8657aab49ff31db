"""The generated part of a page: replaced between its marks, and nothing else of the page."""

from pathlib import Path

import pytest

from aaren.errors import DataError
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"no marks", "put these two lines there, once each and in this order"),
        (b"<!-- end -->\n<!-- begin -->\n", "in this order: <!-- begin --> and <!-- end -->"),
        (b"<!-- begin -->\n<!-- begin -->\n<!-- end -->", "once each"),
        (b"\xff\xfe", "--page needs a text in UTF-8"),
    ],
)
def test_a_page_without_its_marks(text: bytes, words: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_bytes(text)
    with pytest.raises(DataError, match=words):
        write(page, "new")
    assert page.read_bytes() == text


def test_a_page_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--page needs a text in UTF-8; .*none\.md cannot be read"):
        write(tmp_path / "none.md", "new")
