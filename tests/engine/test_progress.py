import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.engine.config import RunConfig
from aaren.engine.loop import fit
from aaren.engine.progress import JsonLines, LogLines, Observers, ProgressBar, choose_observer, duration
from aaren.engine.run import train
from support.toy_task import ToyExperiment

Toy = Callable[..., ToyExperiment]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_few_and_say_everything(toy: Toy) -> None:
    stream = io.StringIO()
    fit(toy(epochs=5), seed=0, observer=LogLines(stream), name="line aaren")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "line aaren: 40 updates"
    assert lines[1].startswith("epoch 1, update 8/40: loss ")
    assert "validation mse " in lines[1]
    assert "(best)" in lines[1]
    assert lines[-1].startswith("epoch 5, update 40/40: ")
    assert lines[-1].endswith(" updates/s, 0 s left")


def test_a_long_epoch_is_not_silent(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aaren.engine.progress.SILENT_SECONDS", 0.0)
    stream = io.StringIO()
    fit(toy(epochs=1), seed=0, observer=LogLines(stream), name="line aaren")
    lines = stream.getvalue().splitlines()
    assert lines[1].startswith("epoch 1, update 1/8: loss ")
    assert "updates/s, " in lines[1]
    assert lines[1].endswith(" left")
    for line in lines[-2:]:  # the last update, and its evaluation
        assert line.startswith("epoch 1, update 8/8: loss ")
    assert "validation mse " in lines[-1]


def test_json_lines(toy: Toy, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    observer = JsonLines(str(path))
    observer.say("hello")
    fit(toy(epochs=2), seed=0, observer=observer)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["event"] for event in events] == ["message", "begin", "evaluation", "evaluation", "end"]
    assert events[-2]["is_done"]
    assert set(events[2]["validation"]) == {"mse", "mae"}


def test_the_bar_shows_loss_metric_rate_and_time_left(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("aaren.engine.progress.REFRESH_SECONDS", 0.0)
    observer = choose_observer(None)
    assert isinstance(observer, ProgressBar)
    observer.say("before the bar")
    fit(toy(epochs=2), seed=0, observer=observer, name="line aaren")
    shown = terminal.getvalue()
    for words in (
        "before the bar",
        "line aaren",
        "16/16",
        "epoch 2",
        "loss ",
        "mse ",
        "(best ",
        "/s",
        "left",
    ):
        assert words in shown


def test_the_place_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(choose_observer(None), LogLines)
    assert isinstance(choose_observer("-"), JsonLines)


def test_several_are_all_told(toy: Toy) -> None:
    streams = io.StringIO(), io.StringIO()
    observer = Observers(*map(LogLines, streams))
    observer.say("x")
    fit(toy(epochs=1), seed=0, observer=observer)
    assert streams[0].getvalue().startswith("x\n")
    assert len({stream.getvalue().count("\n") for stream in streams}) == 1


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "0 s"), (59.6, "1 min 0 s"), (3600, "1 h 0 min")])
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
@pytest.mark.parametrize("kind", ["json", "lines", "bar"])
def test_what_cannot_be_written_does_not_end_a_run(
    kind: str, toy_run: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115
    try:
        monkeypatch.setattr("sys.stderr", full)
        observer = {"json": lambda: JsonLines("/dev/full"), "lines": LogLines, "bar": ProgressBar}[kind]()
        assert train(toy_run(), tmp_path / "run", observer=observer).status == "finished"
        observer.say("all is well")
    finally:
        with contextlib.suppress(OSError):
            full.close()


@pytest.mark.parametrize(
    "where", ["closed", *(pytest.param(name, marks=pytest.mark.long) for name in ("gone", "shut"))]
)
def test_a_run_ends_well_whatever_became_of_stderr(
    where: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """`2>&-`, and a reader of the pipe that has gone away."""
    words = "train support.toy_task line --set epochs=1 --out run"
    command = f"{sys.executable} -c 'from aaren.cli.main import main; main()' {words}"
    ending = {"closed": "2>&-", "gone": "2> >(exit)", "shut": "2>/dev/full"}[where]
    done = subprocess.run(
        ["bash", "-c", f"{command} {ending}"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "run run"
    assert done.returncode == 0
