"""The scheduler with real worker processes, in trouble too. Kills from outside are in test_killing.py."""

import _multiprocessing
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aaren.engine.record import read_record
from aaren.engine.run import train
from aaren.engine.use import Sweep
from aaren.errors import StateError
from aaren.files.lock import locked
from aaren.lab import schedule as scheduling
from aaren.lab.plan import PlannedRun
from aaren.lab.records import collect
from aaren.lab.schedule import Schedule, Scheduler, last_evaluation, newest_checkpoint
from aaren.lab.workers import Ended, Exit, LocalWorkers, carry_out
from lab.conftest import Notes

Planned = Callable[..., PlannedRun]


def states(schedule: Schedule) -> list[str]:
    return [item.state for item in schedule.runs]


def test_every_run_is_carried_out(planned: Planned, notes: Notes) -> None:
    schedule = Schedule.of([planned(seed) for seed in range(3)])
    Scheduler(schedule, LocalWorkers(2, threads=1), notes).run()
    assert states(schedule) == ["finished"] * 3
    for item in schedule.runs:
        record = read_record(item.run.folder / "record.json")
        assert (record.status, record.command, record.threads) == ("finished", item.run.command, 1)
        assert f"finished  {item.run.name}: test.mse" in "\n".join(notes.texts)


def test_a_trained_run_is_swept_once(planned: Planned, notes: Notes) -> None:
    sweep = Sweep.parse("batch_size=4,8")
    run = replace(planned(0), sweeps=(sweep,))
    Scheduler(Schedule.of([run]), LocalWorkers(1, threads=1), notes).run()
    first = read_record(run.folder / "record.json")
    assert [row["value"] for row in first.sweeps["batch_size"]["rows"]] == ["4", "8"]
    Scheduler(Schedule.of([run]), LocalWorkers(1, threads=1), notes).run()
    assert read_record(run.folder / "record.json") == first
    assert collect(run.folder.parent).records == [first]
    assert (run.folder.parent / "runs.jsonl").read_text().count("\n") == 1


def test_a_sweep_that_cannot_be_is_a_failure_and_the_record_stays(
    planned: Planned, notes: Notes, workers: LocalWorkers
) -> None:
    run = replace(planned(0), sweeps=(Sweep.parse("bath_size=4"),))
    schedule = Schedule.of([run])
    Scheduler(schedule, workers, notes).run()
    assert states(schedule) == ["failed"]
    assert "did you mean 'batch_size'" in schedule.runs[0].text
    assert read_record(run.folder / "record.json").status == "finished"


def test_a_failed_run_stops_nothing(planned: Planned, notes: Notes, workers: LocalWorkers) -> None:
    bad, good = planned(0, penalty=1e38), planned(1)
    schedule = Schedule.of([bad, good])
    Scheduler(schedule, workers, notes).run()
    assert states(schedule) == ["failed", "finished"]
    assert schedule.runs[0].text == read_record(bad.folder / "record.json").error
    assert schedule.runs[0].text.startswith("DivergedError: the loss is ")


def test_a_run_that_kills_its_workers_is_given_up(
    troubled: Planned, notes: Notes, workers: LocalWorkers
) -> None:
    run = troubled("die")
    schedule = Schedule.of([run, troubled("line")])
    Scheduler(schedule, workers, notes).run()
    assert states(schedule) == ["failed", "finished"]
    assert schedule.runs[0].deaths == scheduling.MAX_DEATHS
    assert "its worker was lost (killed by SIGKILL); another one resumes it" in notes.texts[0]
    record = read_record(run.folder / "record.json")
    assert (record.status, record.ended_by) == ("failed", "error")
    assert record.error == (
        "WorkerDiedError: its worker process died 3 times, the last time: killed by SIGKILL"
    )


@pytest.mark.long
def test_a_run_that_gets_on_may_lose_any_number_of_workers(
    troubled: Planned, notes: Notes, workers: LocalWorkers
) -> None:
    schedule = Schedule.of([troubled("preempted", epochs=4)])
    Scheduler(schedule, workers, notes).run()
    assert states(schedule) == ["finished"]
    assert schedule.runs[0].deaths > scheduling.MAX_DEATHS


def test_a_sweep_that_kills_its_workers_leaves_the_record(planned: Planned) -> None:
    run = planned(0)
    train(run.config, run.folder)
    before = (run.folder / "record.json").read_text()
    scheduling.write_failure(scheduling.ScheduledRun(run=run), "WorkerDiedError: it died 3 times")
    assert (run.folder / "record.json").read_text() == before


def test_a_hanging_run_is_ended_by_its_timeout_and_stops_nothing(
    troubled: Planned, notes: Notes, workers: LocalWorkers
) -> None:
    hanging, good = troubled("hang"), troubled("line")
    schedule = Schedule.of([hanging, good])
    Scheduler(schedule, workers, notes, timeout=6.0).run()
    assert states(schedule) == ["failed", "finished"]
    record = read_record(hanging.folder / "record.json")
    assert record.error == "TimeoutError: it took longer than its timeout (6 s)"
    assert record.updates == 3
    assert schedule.runs[0].deaths == 1  # another try would hang as well


@pytest.mark.long
def test_a_run_without_progress_loses_its_workers_and_is_given_up(
    troubled: Planned, notes: Notes, workers: LocalWorkers
) -> None:
    hanging, good = troubled("hang"), troubled("line")
    schedule = Schedule.of([hanging, good])
    Scheduler(schedule, workers, notes, stall=6.0).run()
    assert states(schedule) == ["failed", "finished"]
    error = str(read_record(hanging.folder / "record.json").error)
    assert (
        error
        == "WorkerDiedError: its worker process died 3 times, the last time: it made no progress for 6 s"
    )
    assert sum("resumes at update 3" in text for text in notes.texts) >= 2


def test_a_pause_leaves_the_rest_for_later(planned: Planned, notes: Notes) -> None:
    runs = [planned(0, slow_seconds=0.1), planned(1)]
    schedule = Schedule.of(runs)
    first = runs[0].folder
    Scheduler(schedule, LocalWorkers(1, threads=1), notes).run(lambda: newest_checkpoint(first) > 0)
    assert states(schedule) == ["stopped", "stopped"]
    assert not (first / "record.json").exists()
    again = Schedule.of(runs)
    Scheduler(again, LocalWorkers(2, threads=1), notes).run()
    assert states(again) == ["finished", "finished"]
    assert any("resumes at update" in text for text in notes.texts)


def test_a_worker_that_somebody_else_pauses_is_replaced(
    planned: Planned, notes: Notes, workers: LocalWorkers
) -> None:
    run = planned(0, slow_seconds=0.1)
    schedule = Schedule.of([run])
    asked: list[int] = []

    def terminate_once() -> bool:
        if not asked and newest_checkpoint(run.folder) > 0:
            asked.append(int((run.folder / ".lock").read_text()))
            os.kill(asked[0], signal.SIGTERM)
        return False

    Scheduler(schedule, workers, notes).run(terminate_once)
    assert (states(schedule), len(asked), schedule.runs[0].deaths) == (["finished"], 1, 0)
    assert read_record(run.folder / "record.json").resumed == 1


def test_a_pause_of_a_hanging_run_can_be_ended(
    troubled: Planned, notes: Notes, workers: LocalWorkers
) -> None:
    run = troubled("hang")
    schedule = Schedule.of([run])
    scheduler = Scheduler(schedule, workers, notes, timeout=8.0)
    scheduler.run(lambda: newest_checkpoint(run.folder) == 3)
    assert states(schedule) == ["failed"]


class SlowToStart(LocalWorkers):
    """Workers that are ended before they come as far as their run, as on a busy machine."""

    def wait(self, seconds: float) -> list[Ended]:
        return [ended._replace(has_started=False) for ended in super().wait(seconds)]


def test_a_timeout_before_a_worker_has_started_fails_that_run_alone(
    troubled: Planned, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "IN_USE_SECONDS", 0.01)
    schedule = Schedule.of([troubled("hang")])
    with contextlib.closing(SlowToStart(1, threads=1)) as workers:
        Scheduler(schedule, workers, notes, timeout=0.5).run()
    assert states(schedule) == ["failed"]
    assert schedule.runs[0].text == "TimeoutError: it took longer than its timeout (0 s)"


def test_a_run_that_another_process_holds(
    planned: Planned, notes: Notes, workers: LocalWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "IN_USE_SECONDS", 0.01)
    held, free = planned(0), planned(1)
    schedule = Schedule.of([held, free])
    with locked(held.folder):
        Scheduler(schedule, workers, notes).run()
    assert states(schedule) == ["stopped", "finished"]
    assert notes.texts[-1] == f"left to the process that holds it: {held.name}"
    assert f"is in use by process {os.getpid()}" in schedule.runs[0].text
    assert not (held.folder / "record.json").exists()


def test_a_record_of_a_newer_version_is_not_overwritten(
    planned: Planned, notes: Notes, workers: LocalWorkers
) -> None:
    run = planned(0)
    record = train(run.config, run.folder)
    path = run.folder / "record.json"
    newer = json.dumps(json.loads(path.read_text()) | {"format": 99})
    path.write_text(newer)
    schedule = Schedule.of([run])
    Scheduler(schedule, workers, notes).run()
    assert record.status == "finished"
    assert states(schedule) == ["failed"]
    assert "has format 99; this version of aaren reads format 1" in schedule.runs[0].text
    assert path.read_text() == newer


@pytest.mark.long
def test_a_full_disk_stops_the_grid_with_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    resource = pytest.importorskip("resource")  # not on Windows
    words = ["reproduce", "support.toy_grid", "--profile", "smoke", "--out", str(tmp_path / "runs")]
    done = subprocess.run(
        [sys.executable, "-c", "from aaren.cli.main import main; main()", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        # The system refuses larger files, as a full disk does.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert done.returncode == 2, done.stderr
    assert "error: cannot write to" in done.stderr
    assert "Free some space or choose another folder (--out); the same command then resumes." in done.stderr
    assert "Traceback" not in done.stderr


class DeadWorkers:
    """Workers that cannot be started."""

    size = 1

    def __init__(self) -> None:
        self.submitted: list[Path] = []

    def submit(self, run: PlannedRun) -> None:
        self.submitted.append(run.folder)

    def wait(self, seconds: float) -> list[Ended]:
        del seconds
        return [Ended(self.submitted[-1], 1, "no torch", has_started=False)]

    def pause(self) -> None: ...

    def kill(self, folder: Path) -> None: ...

    def close(self) -> None: ...


def test_workers_that_cannot_be_started(
    planned: Planned, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "IN_USE_SECONDS", 0.0)
    schedule, workers = Schedule.of([planned(0)]), DeadWorkers()
    with pytest.raises(StateError, match="workers cannot be started: no torch"):
        Scheduler(schedule, workers, notes).run()
    assert len(workers.submitted) == scheduling.MAX_DEATHS
    assert states(schedule) == ["stopped"]


def carried_out(run: PlannedRun, *, is_paused: bool = False) -> tuple[Exit, str]:
    return carry_out(run, threads=1, is_pause_wanted=lambda: is_paused, say=lambda _text: None)


def test_exit_codes_are_those_of_the_errors(planned: Planned, tmp_path: Path) -> None:
    run = planned(0)
    assert carried_out(run, is_paused=True)[0] is Exit.PAUSED
    assert carried_out(run) == (Exit.FINISHED, "")
    with locked(run.folder):
        assert carried_out(run)[0] is Exit.IN_USE
    assert carried_out(planned(0, penalty=1e38))[0] is Exit.DIVERGED
    (tmp_path / "file").write_text("")
    assert carried_out(replace(run, folder=tmp_path / "file" / "run"))[0] is Exit.UNWRITABLE
    other = replace(run, config=planned(1).config)
    assert carried_out(other)[0] is Exit.MISUSE
    assert 1 not in set(Exit)  # Python's own, of a crash


def test_a_pause_between_two_values_of_a_sweep(planned: Planned) -> None:
    run = planned(0)
    train(run.config, run.folder)
    sweep = Sweep.parse("batch_size=4,8")
    code, text = carried_out(replace(run, sweeps=(sweep,)), is_paused=True)
    assert (code, text) == (Exit.PAUSED, "stopped after batch_size=4; the same command sweeps it again.")
    assert read_record(run.folder / "record.json").sweeps == {}


@pytest.mark.parametrize(
    "line",
    [
        "[" * 10_000,
        "{}",
        '{"update": 1' + "0" * 5_000,
        '{"update": 3, "validation": 3, "is_best": true}',
        "[1]",
    ],
)
def test_a_strange_curve_is_no_progress(tmp_path: Path, line: str) -> None:
    (tmp_path / "curve.jsonl").write_text(line + "\n")
    (tmp_path / "checkpoints" / "update-x").mkdir(parents=True)
    (tmp_path / "checkpoints" / ("update-" + "9" * 100)).mkdir()
    assert last_evaluation(tmp_path) == (0, "")
    assert newest_checkpoint(tmp_path) == 0


def test_progress_is_read_from_the_runs_files(planned: Planned) -> None:
    run = planned(0)
    assert carried_out(run, is_paused=True)[0] is Exit.PAUSED
    assert (newest_checkpoint(run.folder), last_evaluation(run.folder)) == (1, (0, ""))
    record = train(run.config, run.folder)
    update, text = last_evaluation(run.folder)
    assert update == record.updates
    last, best = record.metrics["last"]["mse"], record.metrics["best"]["mse"]
    assert text == f"mse {last:.4g} (best {best:.4g})"


@pytest.fixture
def schedule(planned: Planned) -> Schedule:
    """Four runs of 10 estimated seconds for two workers, at second 100."""
    runs = [planned(seed) for seed in range(4)]
    made = Schedule.of(runs, estimates={run.folder: 10.0 for run in runs}, workers=2)
    made.now = lambda: 100.0
    return made


def test_time_left(schedule: Schedule) -> None:
    assert schedule.seconds_left() == 20.0
    first = schedule.runs[0]
    first.state, first.started = "running", 94.0
    assert schedule.seconds_left() == (4.0 + 30.0) / 2
    first.state, first.seconds = "finished", 30.0  # finished runs correct the estimates
    assert schedule.seconds_left() == pytest.approx(3 * 30.0 / 2)
    first.seconds, first.estimate = 0.5, 0.01  # nearly all of it is opening and testing
    assert schedule.seconds_left() == 3 * 10.0 / 2
    for item in schedule.runs[1:]:
        item.state, item.seconds = "finished", 10.0
    schedule.runs[3].state = "waiting"
    assert schedule.seconds_left() == 10.0  # one run cannot be shared by two workers


def test_an_unknown_time(planned: Planned) -> None:
    schedule = Schedule.of([planned(0)])
    assert schedule.seconds_left() is None
    schedule.runs[0].state = "failed"
    assert schedule.seconds_left() == 0.0


def test_what_libraries_keep_until_the_end_of_a_run_is_given_back(
    troubled: Planned, workers: LocalWorkers
) -> None:
    workers.submit(troubled("semaphore", epochs=1))
    ended: list[Ended] = []
    while not ended:
        ended = workers.wait(1.0)
    assert ended[0].code == Exit.FINISHED
    with pytest.raises(FileNotFoundError):
        _multiprocessing.sem_unlink(ended[0].text)  # its name, which the run printed
