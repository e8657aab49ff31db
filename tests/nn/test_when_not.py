"""The page's tables are the records', number for number."""

from pathlib import Path

import pytest

from records import number, read_record

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "when-not.md").read_text(encoding="utf-8")


def test_associative_recall() -> None:
    record = read_record(ROOT / "results" / "nn" / "associative_recall.json", kind="associative_recall")
    assert record.settings["steps"] == 1000
    sizes = [(keys, pairs) for keys in (16, 64) for pairs in (4, 16)]
    heads = " | ".join(f"{keys} keys, {pairs} pairs" for keys, pairs in sizes)
    assert f"| accuracy | {heads} |" in PAGE
    accuracies: dict[str, list[float]] = {}
    for mixer in ("aaren", "gru", "softmax"):
        cells = [record.find(mixer=mixer, keys=keys, pairs=pairs) for keys, pairs in sizes]
        accuracies[mixer] = [number(cell, "accuracy") for cell in cells if cell is not None]
        assert row_of(f"`{mixer}`", accuracies[mixer]) in PAGE
    assert row_of("chance", [1 / keys for keys, _ in sizes]) in PAGE
    assert min(accuracies["softmax"]) > 0.95
    assert accuracies["aaren"][0] > 0.9  # the easiest of the four
    assert max(accuracies["aaren"][1:]) < 0.5


def row_of(name: str, values: list[float]) -> str:
    return f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |"


@pytest.mark.parametrize("cure", ["none", "decay, half-life 500", "learned decay, untrained", "reset"])
def test_dilution(cure: str) -> None:
    record = read_record(ROOT / "results" / "nn" / "dilution.json", kind="dilution")
    cells = [record.find(cure=cure, items=items) for items in (2_000, 20_000, 200_000)]
    row = " | ".join(f"{cell['share_of_latest']:.1%}" for cell in cells if cell)
    assert f"| {cure} | {row} |" in PAGE


def test_order() -> None:
    record = read_record(ROOT / "results" / "nn" / "order.json", kind="order")
    means: dict[str, float] = {}
    for order in ("aaren", "aaren, convolution", "aaren, positions", "aaren, both"):
        runs = [row for row in record.measurements if row["order"] == order]
        assert [row["seed"] for row in runs] == [0, 1, 2]
        means[order] = sum(number(row, "accuracy") for row in runs) / 3
    assert (
        means["aaren"] < 0.6 < means["aaren, convolution"] < means["aaren, positions"] < means["aaren, both"]
    )
