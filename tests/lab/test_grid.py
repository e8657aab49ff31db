import io
import json
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.engine.config import RunConfig
from aaren.engine.record import read_record
from aaren.engine.run import train
from aaren.engine.use import Sweep
from aaren.errors import StateError
from aaren.files.lock import locked
from aaren.lab import grid as scheduler
from aaren.lab.crew import LocalCrew
from aaren.lab.grid import Board, Grid
from aaren.lab.job import Job, Message, carry_out
from aaren.lab.plan import PlannedRun
from aaren.lab.view import draw
from support.toy_task import SETTING, ToyConfig

Planned = Callable[..., PlannedRun]


class Notes:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)

    def refresh(self, board: Board) -> None:
        del board


@pytest.fixture
def notes() -> Notes:
    return Notes()


def board_of(*runs: PlannedRun) -> Board:
    return Board.of(runs, estimates={}, workers=1)


def test_every_run_is_carried_out(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    board, crew = board_of(*(planned(seed) for seed in range(3))), inline_crew(2)
    Grid(board, crew, notes, threads=1).run()
    assert [entry.state for entry in board.entries] == ["finished"] * 3
    assert crew.is_closed
    assert crew.hired == 2
    for entry in board.entries:
        record = read_record(entry.run.folder / "record.json")
        assert (record.status, record.command) == ("finished", entry.run.command)
        assert f"finished  {entry.run.name}: test.mse" in "\n".join(notes.texts)


def test_a_trained_run_is_swept(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    sweep = Sweep.parse("batch_size=4,8")
    run = replace(planned(0), sweeps=(sweep,))
    Grid(board_of(run), inline_crew(), notes, threads=1).run()
    first = sweep.file(run.folder).read_text()
    assert [row["value"] for row in json.loads(first)["rows"]] == ["4", "8"]
    Grid(board_of(run), inline_crew(), notes, threads=1).run()
    assert sweep.file(run.folder).read_text() == first  # once is enough


def test_a_sweep_that_cannot_be_is_a_failure_and_the_record_stays(
    planned: Planned, inline_crew: Callable, notes: Notes
) -> None:
    board = board_of(replace(planned(0), sweeps=(Sweep.parse("bath_size=4"),)))
    Grid(board, inline_crew(), notes, threads=1).run()
    (entry,) = board.entries
    assert entry.state == "failed"
    assert "did you mean 'batch_size'" in entry.text
    assert read_record(entry.run.folder / "record.json").status == "finished"


def test_a_sweep_that_kills_its_workers_leaves_the_record(
    planned: Planned, inline_crew: Callable, notes: Notes
) -> None:
    run = planned(0)
    train(run.config, run.folder)
    before = (run.folder / "record.json").read_text()
    board = board_of(replace(run, sweeps=(Sweep.parse("batch_size=4"),)))
    Grid(board, inline_crew(deaths=scheduler.MAX_DEATHS), notes, threads=1).run()
    assert board.entries[0].state == "failed"
    assert (run.folder / "record.json").read_text() == before


def test_a_full_disk_during_a_sweep(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    run = planned(0)
    train(run.config, run.folder)
    board = board_of(replace(run, sweeps=(Sweep.parse("batch_size=4"),)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        with pytest.raises(StateError, match=r"cannot write to .*Free some space"):
            Grid(board, inline_crew(), notes, threads=1).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_pause_between_two_values_of_a_sweep(planned: Planned) -> None:
    run = planned(0)
    train(run.config, run.folder)
    sweep = Sweep.parse("batch_size=4,8")
    job = Job(config=run.config, folder=run.folder, command=run.command, threads=1, sweeps=(sweep,))
    told: list[Message] = []
    last = carry_out(Job.from_json(job.to_json()), told.append, lambda: True)
    assert last.event == "paused"
    assert told[-1].text == "scored with batch_size=4"
    assert not sweep.file(run.folder).exists()


def test_no_more_workers_than_runs(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    crew = inline_crew(8)
    Grid(board_of(planned(0), planned(1)), crew, notes, threads=1).run()
    assert crew.hired == 2


def test_a_failed_run_stops_nothing(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    bad, good = planned(0, penalty=1e38), planned(1)
    board = board_of(bad, good)
    Grid(board, inline_crew(), notes, threads=1).run()
    assert [entry.state for entry in board.entries] == ["failed", "finished"]
    assert "it has diverged" in board.entries[0].text
    assert "DivergedError" in str(read_record(bad.folder / "record.json").error)


def test_a_lost_worker_is_replaced(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    board, crew = board_of(planned(0)), inline_crew(deaths=2)
    Grid(board, crew, notes, threads=1).run()
    assert board.entries[0].state == "finished"
    assert (board.entries[0].deaths, crew.hired) == (2, 3)
    assert "its worker was lost (killed by SIGKILL); it goes on with another one" in notes.texts[0]


def test_a_run_that_kills_its_workers_is_given_up(
    planned: Planned, inline_crew: Callable, notes: Notes
) -> None:
    board = board_of(planned(0), planned(1))
    Grid(board, inline_crew(deaths=5), notes, threads=1).run()
    states = {entry.state for entry in board.entries}
    given_up = next(entry for entry in board.entries if entry.state == "failed")
    assert states == {"failed", "finished"}
    record = read_record(given_up.run.folder / "record.json")
    assert (record.status, record.ended_by) == ("failed", "error")
    assert record.error == (
        "WorkerDiedError: its worker process died 3 times, the last time: killed by SIGKILL"
    )


def test_workers_that_cannot_be_started(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    crew = inline_crew(stillborn=9)
    with pytest.raises(StateError, match="workers cannot be started: no torch"):
        Grid(board_of(planned(0)), crew, notes, threads=1).run()
    assert crew.hired == scheduler.MAX_DEATHS


def test_workers_that_are_killed_while_idle(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    board, crew = board_of(*(planned(seed) for seed in range(4))), inline_crew(4)
    grid = Grid(board, crew, notes, threads=1)
    grid._hand_out()
    for place in range(4):
        grid._hear(place, Message(event="ready"))
    for place in range(scheduler.MAX_DEATHS):
        grid._hear(place, Message(event="died", text="killed by SIGKILL"))
    grid.run()
    assert [entry.state for entry in board.entries] == ["finished"] * 4


def test_a_pause_leaves_the_rest_for_later(planned: Planned, inline_crew: Callable, notes: Notes) -> None:
    board, crew = board_of(planned(0), planned(1)), inline_crew(lag=1)
    Grid(board, crew, notes, threads=1).run(lambda: bool(crew.jobs))
    assert [entry.state for entry in board.entries] == ["stopped", "stopped"]
    assert list((board.entries[0].run.folder / "checkpoints").glob("update-*"))
    again = board_of(*(entry.run for entry in board.entries))
    Grid(again, inline_crew(), notes, threads=1).run()
    assert [entry.state for entry in again.entries] == ["finished", "finished"]
    assert any("goes on at update 1" in text for text in notes.texts)


def test_a_run_that_another_process_holds(
    planned: Planned, inline_crew: Callable, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "BUSY_SECONDS", 0.01)
    held, free = planned(0), planned(1)
    board = board_of(held, free)
    with locked(held.folder):
        Grid(board, inline_crew(), notes, threads=1).run()
    assert [entry.state for entry in board.entries] == ["stopped", "finished"]
    assert notes.texts[-1] == f"left to the process that holds it: {held.name}"
    assert f"is in use by process {os.getpid()}" in board.entries[0].text
    assert not (held.folder / "record.json").exists()


def test_a_full_disk_stops_the_grid_with_one_line(
    planned: Planned, inline_crew: Callable, notes: Notes
) -> None:
    board = board_of(planned(0), planned(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (100, hard)
    )  # the system refuses larger files, as a full disk does
    try:
        with pytest.raises(StateError, match=r"cannot write to .*Free some space or choose another folder"):
            Grid(board, inline_crew(), notes, threads=1).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [entry.state for entry in board.entries] == ["failed", "stopped"]
    again = board_of(*(entry.run for entry in board.entries))
    Grid(again, inline_crew(), notes, threads=1).run()
    assert [entry.state for entry in again.entries] == ["finished", "finished"]


def test_a_record_of_a_newer_version_is_not_overwritten(
    planned: Planned, inline_crew: Callable, notes: Notes, tmp_path: Path
) -> None:
    run = planned(0)
    Grid(board_of(run), inline_crew(), notes, threads=1).run()
    path = run.folder / "record.json"
    newer = json.dumps(json.loads(path.read_text()) | {"format": 99})
    path.write_text(newer)
    board = board_of(run)
    Grid(board, inline_crew(), notes, threads=1).run()
    assert board.entries[0].state == "failed"
    assert "has format 99; this version of aaren reads format 1" in board.entries[0].text
    assert path.read_text() == newer
    assert tmp_path in path.parents


class PreemptedCrew:
    """Wraps a crew whose workers are taken away after so many updates, checkpoints saved."""

    def __init__(self, crew, updates: int) -> None:
        self.crew, self.updates, self.size, self.losses = crew, updates, crew.size, 0
        self.hire, self.give, self.pause, self.close = crew.hire, crew.give, crew.pause, crew.close

    def listen(self, seconds: float) -> tuple[int, Message] | None:
        if self.crew.told or not self.crew.jobs:
            return self.crew.listen(seconds)
        place, job = self.crew.jobs.popleft()
        asked: list[int] = []

        def is_gone() -> bool:
            asked.append(1)
            return len(asked) >= self.updates

        last = carry_out(job, lambda message: self.crew.told.append((place, message)), is_gone)
        if last.event == "paused":
            self.losses += 1
            last = Message(event="died", text="killed by SIGKILL")
        self.crew.told.append((place, last))
        return self.crew.listen(seconds)


def test_a_run_that_gets_on_may_lose_any_number_of_workers(
    planned: Planned, inline_crew: Callable, notes: Notes
) -> None:
    board, crew = board_of(planned(0)), PreemptedCrew(inline_crew(), updates=3)
    Grid(board, crew, notes, threads=1).run()
    assert crew.losses > 2 * scheduler.MAX_DEATHS
    assert board.entries[0].state == "finished"


def test_a_pause_after_a_worker_has_died() -> None:
    crew = LocalCrew(1, threads=1)
    try:
        crew.hire(0)
        heard = crew.listen(120)
        assert heard is not None
        assert heard[1].event == "ready"
        crew._processes[0].kill()
        heard = crew.listen(60)
        assert heard is not None
        assert heard[1].event == "died"
        crew.pause()  # as Ctrl-C does, whatever became of the workers
        crew.give(
            0,
            Job(
                config=RunConfig(setting=SETTING.name, task=ToyConfig()), folder=Path(), command="", threads=1
            ),
        )
    finally:
        crew.close()


@pytest.mark.xfail(strict=True, reason="a run that hangs keeps its worker for ever: there is no --timeout")
def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    words = [
        "reproduce",
        "support.toy_grid",
        "--profile",
        "smoke",
        "--out",
        str(tmp_path),
        "--timeout",
        "0.1",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1, result.output


@pytest.mark.xfail(strict=True, reason="the board does not say that a run stands still")
def test_a_run_that_stands_still_is_named(planned: Planned) -> None:
    clock = [0.0]
    board = board_of(planned(0))
    board.now = lambda: clock[0]
    board.entries[0].state = "running"
    grid = Grid(board, InlineNothing(), Notes(), threads=1)
    grid._note_progress(board.entries[0], Message(event="progress", update=3, max_updates=9))
    clock[0] = 3600.0
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(draw(board, 200))
    assert "no progress for" in console.export_text()


class InlineNothing:
    """A crew that nobody works in."""

    size = 0

    def hire(self, place: int) -> None: ...

    def give(self, place: int, job: Job) -> None: ...

    def listen(self, seconds: float) -> tuple[int, Message] | None: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...
