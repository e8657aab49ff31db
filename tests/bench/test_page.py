from pathlib import Path

import pytest

from aaren.bench.publish import begin_mark, end_mark, read_generated, write_generated
from aaren.errors import DataError


def test_only_the_part_between_the_marks_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{begin_mark('scan')}\nold\n{end_mark('scan')}\nafter\n")
    write_generated(page, "scan", "new\n")
    assert read_generated(page, "scan") == "new\n"
    assert page.read_text() == f"before\n{begin_mark('scan')}\nnew\n{end_mark('scan')}\nafter\n"


@pytest.mark.parametrize(
    "text", ["nothing", begin_mark("scan") + "\n", f"{end_mark('scan')}\n{begin_mark('scan')}\n"]
)
def test_missing_or_swapped_marks_are_told(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(DataError, match="must hold these two lines, once each and in this order"):
        read_generated(page, "scan")


def test_missing_page_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--page needs an existing Markdown file"):
        read_generated(tmp_path / "none.md", "scan")
