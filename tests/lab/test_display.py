import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from aaren.lab import display
from aaren.lab.display import announcement, outcome
from aaren.lab.plan import PlannedRun, Request, find_status, plan
from aaren.lab.schedule import Schedule
from aaren.lab.workers import Resources

TOY = "support.toy_grid"


@pytest.fixture
def schedule(planned: Callable[..., PlannedRun]) -> Schedule:
    """One run with a checkpoint, one without, one waiting, one failed."""
    runs = [planned(seed) for seed in range(4)]
    made = Schedule.of(runs, estimates={run.folder: 60.0 for run in runs}, workers=2, done_before=5)
    made.now = lambda: made.began + 30.0
    one, two, _, four = made.runs
    one.state, one.started, one.progressed, one.update = "running", made.began, made.began, 5
    one.text = "mse 0.5 (best 0.4)"
    two.state, two.started, two.progressed = "running", made.began, made.began
    four.state = "failed"
    return made


def test_a_summary_in_one_line(schedule: Schedule) -> None:
    assert display.summary(schedule) == (
        "5 done · 2 running · 1 waiting · 1 failed · 30 s so far · about 1 min 0 s left"
    )


def test_lines_say_now_and_then_how_far_all_is(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    lines = display.Lines(stream)
    with lines:
        lines.note("something")
        lines.refresh(schedule)  # too soon
        monkeypatch.setattr(display, "STATUS_SECONDS", 0.0)
        lines.refresh(schedule)
    first, status, one, two = stream.getvalue().splitlines()
    assert first == "something"
    assert status.startswith("5 done")
    assert one.endswith("line aaren, seed 0: update 5, 30 s, mse 0.5 (best 0.4)")
    assert two.endswith("line aaren, seed 1: started, 30 s")


def test_the_table_is_drawn(schedule: Schedule) -> None:
    stream = io.StringIO()
    live = display.LiveTable(Console(file=stream, width=140, force_terminal=True, color_system=None))
    with live:
        live.note("finished  [one]")
        live.refresh(schedule)
    shown = stream.getvalue()
    assert "finished  [one]" in shown
    assert "update 5" in shown
    assert "mse 0.5 (best 0.4)" in shown
    assert "started" in shown
    assert "about 1 min 0 s left" in shown


def test_a_note_leaves_the_table_as_it_was_drawn(schedule: Schedule) -> None:
    stream = io.StringIO()
    live = display.LiveTable(Console(file=stream, width=140, force_terminal=True, color_system=None))
    with live:
        live.refresh(schedule)
        live.note("finished")
    assert "[dim]" not in stream.getvalue()


def test_the_last_table_is_the_end(schedule: Schedule) -> None:
    stream = io.StringIO()
    with display.LiveTable(Console(file=stream, width=140, force_terminal=True, color_system=None)) as live:
        live.refresh(schedule)
        for item in schedule.runs:
            item.state = "finished"
        live.refresh(schedule)  # too soon to be drawn
    assert "9 done · 0 running" in stream.getvalue()


def test_numbers_are_whole_on_a_narrow_terminal(schedule: Schedule) -> None:
    schedule.runs[0].text = "mse 1.229 (best 1.208)"
    console = Console(file=io.StringIO(), width=80)
    console.print(display.draw(schedule, 80))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "update 5" in shown
    assert "mse 1.229 (best 1.208)" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_run_without_progress_is_named(schedule: Schedule) -> None:
    schedule.now = lambda: schedule.began + 1800.0
    schedule.runs[1].progressed = schedule.began + 1790.0
    console = Console(file=io.StringIO(), width=80)
    console.print(display.draw(schedule, 80))
    first, second, *_ = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "no progress for 30 min 0 s" in first
    assert "update 5" in first
    assert "no progress" not in second


def test_a_terminal_gets_the_table_and_a_file_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(display.choose_display(), display.Lines)  # pytest holds stderr
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(display.choose_display(), display.LiveTable)


@pytest.fixture
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1}, raising=False)


@pytest.mark.usefixtures("_two_cores")
@pytest.mark.parametrize(
    ("given", "waiting", "workers", "threads"),
    [
        (Resources(), 20, 2, 1),  # one thread each as soon as runs can share the cores
        (Resources(), 1, 1, 2),  # a run alone has them all
        (Resources(workers=1), 20, 1, 2),
        (Resources(workers=4), 20, 4, 1),
        (Resources(threads=2), 20, 1, 2),
        (Resources(workers=3, threads=5), 20, 3, 5),
        (Resources(ray="nowhere:1"), 0, 1, 1),  # nothing to do: nobody is asked
    ],
)
def test_workers_fit_the_cores_and_the_work(
    given: Resources, waiting: int, workers: int, threads: int
) -> None:
    found = given.sized(waiting)
    assert (found.workers, found.threads) == (workers, threads)


@pytest.mark.parametrize(("profile", "time"), [("smoke", "seconds a run"), ("cpu", "for an unknown time")])
def test_a_grid_is_announced(tmp_path: Path, profile: str, time: str) -> None:
    status = find_status(plan(Request(settings=(TOY,), profile=profile, seeds=1), tmp_path), tmp_path)
    first, second = announcement(status, Resources(2, 1))
    assert first == (
        "5 runs: 0 finished already, 5 to run, 0 without data, 0 failed before, 0 not to be touched"
    )
    assert second.startswith(time)
    assert second.endswith(" with 2 workers of 1 thread on this machine")


def test_an_expected_time_says_what_it_leaves_out(tmp_path: Path) -> None:
    status = find_status(plan(Request(settings=(TOY,), profile="cpu", seeds=1), tmp_path), tmp_path)
    status.estimates = {run.folder: 60.0 for run in status.waiting[:3]}
    text = announcement(status, Resources(2, 1))[-1]
    assert text.startswith(
        "about 1 min 30 s for 3 runs with records of the same cells (not known for 2 others) with"
    )


def test_what_became_of_a_grid(planned: Callable[..., PlannedRun]) -> None:
    schedule = Schedule.of([planned(0), planned(1)])
    schedule.runs[0].state = "finished"
    schedule.runs[1].state, schedule.runs[1].text = "failed", "DivergedError: the loss is nan"
    assert outcome(schedule) == [
        "1 finished, 1 failed in 0 s",
        "  failed: support.toy_task line aaren, seed 1: DivergedError: the loss is nan",
    ]
