from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.lab.grid import Board
from aaren.lab.plan import PlannedRun, Request
from aaren.lab.reproduce import Means, announcement, look_ahead, outcome

TOY = "support.toy_grid"


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1}, raising=False)


@pytest.mark.parametrize(
    ("given", "waiting", "workers", "threads"),
    [
        (Means(), 20, 2, 1),  # one thread each as soon as runs can share the cores
        (Means(), 1, 1, 2),  # a run alone has them all
        (Means(workers=1), 20, 1, 2),
        (Means(workers=4), 20, 4, 1),
        (Means(threads=2), 20, 1, 2),
        (Means(workers=3, threads=5), 20, 3, 5),
        (Means(ray="nowhere:1"), 0, 1, 1),  # nothing to do: nobody is asked
    ],
)
def test_workers_fit_the_cores_and_the_work(given: Means, waiting: int, workers: int, threads: int) -> None:
    found = given.sized(waiting)
    assert (found.workers, found.threads) == (workers, threads)


def test_a_grid_is_announced(tmp_path: Path) -> None:
    request = Request(settings=(TOY,), profile="smoke")
    prospect = look_ahead(request, tmp_path, means=Means())
    assert announcement(prospect) == [
        "5 runs: 0 finished already, 5 to run, 0 without data, 0 failed before, 0 not to be touched",
        "seconds a run with 2 workers of 1 thread on this machine (runs: 5 not counted)",
    ]


def test_an_unknown_time_is_not_called_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aaren.lab.reproduce.probe_run", lambda _config: None)
    prospect = look_ahead(Request(settings=(TOY,), profile="cpu"), tmp_path, means=Means())
    assert announcement(prospect)[-1].startswith("for an unknown time with 2 workers")


def test_a_probe_prices_what_was_never_run(tmp_path: Path) -> None:
    said: list[str] = []
    request = Request(settings=(TOY,), profile="cpu", models=("aaren",), seeds=2)
    prospect = look_ahead(request, tmp_path, means=Means(), say=said.append)
    assert said == ["measuring support.toy_task line aaren for a moment ..."]
    assert prospect.estimate.sources == {"probe": 4}
    seconds = prospect.seconds()
    assert seconds is not None
    assert 0.0 < seconds < 60.0
    assert "(runs: 4 by short probes)" in announcement(prospect)[-1]
    assert list(tmp_path.iterdir()) == []  # a probe keeps nothing


def test_what_became_of_a_grid(planned: Callable[..., PlannedRun]) -> None:
    board = Board.of([planned(0), planned(1)], estimates={}, workers=1)
    board.entries[0].state = "finished"
    board.entries[1].state, board.entries[1].text = "failed", "DivergedError: the loss is nan"
    assert outcome(board) == [
        "1 finished, 1 failed in 0 s",
        "  failed: support.toy_task line aaren, seed 1: DivergedError: the loss is nan",
    ]
