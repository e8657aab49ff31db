from collections.abc import Callable

import pytest

from aaren.lab.grid import Board
from aaren.lab.plan import PlannedRun

Planned = Callable[..., PlannedRun]


@pytest.fixture
def board(planned: Planned) -> Board:
    """Four runs of 10 estimated seconds for two workers, at second 100."""
    runs = [planned(seed) for seed in range(4)]
    made = Board.of(runs, estimates={run.folder: 10.0 for run in runs}, workers=2)
    made.now = lambda: 100.0
    return made


def test_all_wait(board: Board) -> None:
    assert board.count("waiting") == 4
    assert board.seconds_left() == 20.0


def test_finished_runs_correct_the_estimates(board: Board) -> None:
    board.entries[0].state, board.entries[0].seconds = "finished", 30.0
    assert board.seconds_left() == pytest.approx(3 * 30.0 / 2)


def test_short_runs_correct_nothing(board: Board) -> None:
    entry = board.entries[0]
    entry.state, entry.seconds, entry.estimate = (
        "finished",
        0.5,
        0.01,
    )  # nearly all of it is opening and testing
    assert board.seconds_left() == 3 * 10.0 / 2


def test_a_runs_own_pace_says_more_than_an_estimate(board: Board) -> None:
    entry = board.entries[0]
    entry.state, entry.began, entry.max_updates = "running", 90.0, 100
    entry.first_update, entry.update = 40, 60  # twenty updates in ten seconds: forty more take twenty
    assert entry.share == 0.6
    assert board.seconds_left() == pytest.approx((20.0 + 30.0) / 2)


def test_the_longest_run_is_the_least(board: Board) -> None:
    for entry in board.entries[1:]:
        entry.state, entry.seconds = "finished", 10.0
    assert board.seconds_left() == 10.0  # one run cannot be shared by two workers


def test_nothing_known(planned: Planned) -> None:
    board = Board.of([planned(0)], estimates={}, workers=1)
    assert board.seconds_left() is None
    board.entries[0].state = "failed"
    assert board.seconds_left() == 0.0
