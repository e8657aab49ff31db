import sys
from itertools import pairwise
from pathlib import Path

import pytest

from aaren.bench.figure import BLUE, GREY, Line, Panel, draw, figure_paths, require_matplotlib, spread_out
from aaren.errors import MissingDependencyError


@pytest.mark.parametrize("is_logarithmic", [True, False])
def test_equal_input_gives_equal_files(is_logarithmic: bool, tmp_path: Path) -> None:
    lines = [
        Line("one", [(1, 1), (10, 10)], BLUE, is_stressed=True),
        Line("two", [(1, 5)], GREY, "--"),
        Line("none", [], GREY),
    ]
    panel = Panel("title", "x", "y", lines)
    first, second = (
        draw([panel], tmp_path / name, caption="words", is_logarithmic=is_logarithmic) for name in ("a", "b")
    )
    for before, after in zip(first, second, strict=True):
        assert before.read_bytes() == after.read_bytes()
    text = first[1].read_text()
    assert "one" in text
    assert ">none<" not in text


def test_nothing_measured_still_draws(tmp_path: Path) -> None:
    png, _ = draw([Panel("empty", "x", "y", [])], tmp_path / "empty")
    assert png.exists()


def test_a_dot_in_the_name_is_kept() -> None:
    assert [path.name for path in figure_paths(Path("run.v2"))] == ["run.v2.png", "run.v2.svg"]


def test_labels_keep_their_order_and_distance() -> None:
    places = [3.0, 1.0, 2.0, 40.0, 41.0, 100.0]
    moved = spread_out(places, 10.0)
    order = sorted(range(len(places)), key=lambda index: places[index])
    assert all(moved[b] - moved[a] >= 10.0 - 1e-9 for a, b in pairwise(order))
    assert moved[-1] == 100.0
    assert spread_out([], 10.0) == []


def test_without_matplotlib_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        MissingDependencyError, match=r"drawing a figure needs 'matplotlib': pip install 'aaren\[plot\]'"
    ):
        require_matplotlib()
