"""The page's tables are the records', number for number."""

from pathlib import Path

import pytest

from aaren.bench.record import read_record

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "when-not.md").read_text(encoding="utf-8")


def test_associative_recall() -> None:
    record = read_record(ROOT / "results" / "nn" / "associative_recall.json", kind="associative_recall")
    assert record.settings["steps"] == 1000
    for mixer in ("aaren", "gru", "softmax"):
        cells = [record.find(mixer=mixer, pairs=pairs) for pairs in (4, 16)]
        row = " | ".join(f"{cell['accuracy']:.3f}" for cell in cells if cell)
        assert f"| `{mixer}` | {row} |" in PAGE
    softmax, aaren = (record.find(mixer=mixer, pairs=16) for mixer in ("softmax", "aaren"))
    assert softmax is not None
    assert aaren is not None
    assert softmax["accuracy"] > 0.95 > 0.5 > aaren["accuracy"]


@pytest.mark.parametrize("cure", ["none", "decay, half-life 500", "learned decay, untrained", "reset"])
def test_dilution(cure: str) -> None:
    record = read_record(ROOT / "results" / "nn" / "dilution.json", kind="dilution")
    cells = [record.find(cure=cure, items=items) for items in (2_000, 20_000, 200_000)]
    row = " | ".join(f"{cell['share_of_latest']:.1%}" for cell in cells if cell)
    assert f"| {cure} | {row} |" in PAGE
