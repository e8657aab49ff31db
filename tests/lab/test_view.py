import io
from collections.abc import Callable

import pytest
from rich.console import Console

from aaren.lab import view
from aaren.lab.grid import Board
from aaren.lab.plan import PlannedRun


@pytest.fixture
def board(planned: Callable[..., PlannedRun]) -> Board:
    """One run at work, one opening, one waiting, one failed."""
    runs = [planned(seed) for seed in range(4)]
    made = Board.of(runs, estimates={run.folder: 60.0 for run in runs}, workers=2, done_before=5)
    made.now = lambda: made.began + 30.0
    one, two, _, four = made.entries
    one.state, one.began, one.update, one.max_updates = "running", made.began, 5, 20
    one.text = "mse 0.5 (best 0.4)"
    two.state, two.began = "running", made.began
    four.state = "failed"
    return made


def test_a_summary_in_one_line(board: Board) -> None:
    assert view.summary(board) == (
        "5 done · 2 running · 1 waiting · 1 failed · 30 s so far · about 1 min 30 s left"
    )


def test_lines_say_now_and_then_how_far_all_is(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    lines = view.Lines(stream)
    with lines:
        lines.note("something")
        lines.refresh(board)  # too soon
        monkeypatch.setattr(view, "STATUS_SECONDS", 0.0)
        lines.refresh(board)
    first, status, one, two = stream.getvalue().splitlines()
    assert first == "something"
    assert status.startswith("5 done")
    assert one.endswith("line aaren, seed 0: update 5/20, mse 0.5 (best 0.4)")
    assert two.endswith("line aaren, seed 1: opening")


def test_the_board_is_drawn(board: Board) -> None:
    stream = io.StringIO()
    live = view.LiveBoard(Console(file=stream, width=140, force_terminal=True, color_system=None))
    with live:
        live.note("finished  [one]")
        live.refresh(board)
    shown = stream.getvalue()
    assert "finished  [one]" in shown
    assert "5/20" in shown
    assert "mse 0.5 (best 0.4)" in shown
    assert "opening" in shown
    assert "about 1 min 30 s left" in shown


def test_a_note_leaves_the_board_as_it_was_drawn(board: Board) -> None:
    stream = io.StringIO()
    live = view.LiveBoard(Console(file=stream, width=140, force_terminal=True, color_system=None))
    with live:
        live.refresh(board)
        live.note("finished")
    assert "[dim]" not in stream.getvalue()


def test_the_last_board_is_the_end(board: Board) -> None:
    stream = io.StringIO()
    with view.LiveBoard(Console(file=stream, width=140, force_terminal=True, color_system=None)) as live:
        live.refresh(board)
        for entry in board.entries:
            entry.state = "finished"
        live.refresh(board)  # too soon to be drawn
    assert "9 done · 0 running" in stream.getvalue()


def test_numbers_are_whole_on_a_narrow_terminal(board: Board) -> None:
    board.entries[0].text = "mse 1.229 (best 1.208)"
    console = Console(file=io.StringIO(), width=80)
    console.print(view.draw(board, 80))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "5/20" in shown
    assert "mse 1.229 (best 1.208)" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_what_is_fitted_in_one_go(board: Board) -> None:
    board.entries[1].has_begun = True
    assert view.progress(board.entries[1]) == "fitting"


def test_a_terminal_gets_the_board_and_a_file_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(view.choose_view(plain=False), view.Lines)  # pytest holds stderr
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(view.choose_view(plain=True), view.Lines)
    assert isinstance(view.choose_view(plain=False), view.LiveBoard)
