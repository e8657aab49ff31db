"""A newcomer finds every change where docs/extending.md says."""

from pathlib import Path

import pytest
import torch

from aaren.ops import dispatch, naive, scan_attention

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith(("| a ", "| an "))]


@pytest.mark.parametrize(("change", "cell"), ROWS, ids=[change.strip() for change, _ in ROWS])
def test_a_change_touches_few_files_and_they_are_there(change: str, cell: str) -> None:
    files = [Path(name.strip().strip("`*")) for name in cell.split(",")]
    assert len(files) <= 3, change
    assert len({file.parent for file in files}) <= 2, change
    for file, name in zip(files, cell.split(","), strict=True):
        assert (ROOT / file).is_file() != name.strip().startswith("*"), f"{change}: {file}"


def test_there_are_ten_changes() -> None:
    assert len(ROWS) == 10


def test_a_backend_is_a_line_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dispatch.BACKENDS, "yours", naive.scan)
    scores, values = torch.zeros(1, 3, 1), torch.tensor([1.0, 3.0, 8.0]).view(1, 3, 1, 1)
    outputs, _ = scan_attention(scores, values, backend="yours")
    assert outputs.flatten().tolist() == [1.0, 2.0, 4.0]
