"""`aaren stream`: JSON lines of many streams, each answered exactly once, also when processes are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from aaren.classification.model import Classifier, ClassifierConfig
from aaren.classification.predict import SampleRows
from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.engine.use import open_rows
from aaren.errors import ConfigError, DataError
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.predict import EventRows
from aaren.forecasting.predict import ForecastRows
from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig
from aaren.rl.model import DecisionModel, DecisionModelConfig
from aaren.rl.session import ObservationRows
from aaren.stream.lines import LineOptions, stream_lines
from aaren.stream.rows import RowPath

SMALL = {"width": 8, "num_heads": 2, "num_layers": 1}


@pytest.fixture
def rows() -> RowPath:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Classifier(
            ClassifierConfig(
                num_channels=2, num_classes=2, length=9, embedding="causal", head="pooled", **SMALL
            )
        )
    learned: Any = {
        "classes": ["calm", "storm"],
        "mean": [10.0, 0.0],
        "deviation": [2.0, 1.0],
        "is_normalised_across_channels": False,
    }
    return SampleRows(model.eval(), learned)


def write_input(path: Path, count: int, *, keys: int = 7) -> Path:
    chance = random.Random(0)
    lines = [
        json.dumps({"id": f"k{chance.randrange(keys)}", "values": [chance.gauss(10, 2), chance.gauss(0, 1)]})
        for _ in range(count)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_answered_in_order_and_once(rows: RowPath, tmp_path: Path) -> None:
    source, out, state = (
        write_input(tmp_path / "in.jsonl", 50),
        tmp_path / "out.jsonl",
        tmp_path / "states.db",
    )
    options = LineOptions(batch=16)
    assert stream_lines(rows, state, source, out=out, options=options) == 50
    answers = read(out)
    assert [answer["offset"] for answer in answers] == list(range(50))
    sessions: dict[str, Any] = {}
    for line, answer in zip(read(source), answers, strict=True):
        assert answer["id"] == line["id"]
        item = line["values"]
        expected = sessions.setdefault(line["id"], rows.model.stream()).push(item)
        torch.testing.assert_close(
            torch.tensor(list(answer["probabilities"].values())), expected, atol=1e-5, rtol=1e-4
        )
        assert answer["class"] == rows.names[int(expected.argmax())]
    before = out.read_bytes()
    assert stream_lines(rows, state, source, out=out, options=options) == 0
    assert out.read_bytes() == before
    with source.open("a") as more:
        more.write('{"id": 3, "values": [1, 2]}')  # no end of line, a number as key
    assert stream_lines(rows, state, source, out=out, options=options) == 1
    assert read(out)[50]["id"] == "3"


def test_only_decisions_or_alarms_are_written(rows: RowPath, tmp_path: Path) -> None:
    source = write_input(tmp_path / "in.jsonl", 40)
    stream_lines(rows, tmp_path / "a.db", source, out=tmp_path / "all.jsonl")
    answers = read(tmp_path / "all.jsonl")
    level = sorted(answer["probability"] for answer in answers)[20]
    name = next(answer["class"] for answer in answers if answer["probability"] >= level)
    decided, alarms = tmp_path / "decided.jsonl", tmp_path / "alarms.jsonl"
    stream_lines(
        rows, tmp_path / "b.db", source, out=decided, options=LineOptions(emit="on-decision", threshold=level)
    )
    options = LineOptions(emit="on-alarm", alarms=(name,), threshold=level)
    stream_lines(rows, tmp_path / "c.db", source, out=alarms, options=options)
    assert read(decided) == [answer for answer in answers if answer["probability"] >= level]
    assert read(alarms) == [answer for answer in read(decided) if answer["class"] == name]
    with pytest.raises(ConfigError, match="unknown --alarm 'strom'; did you mean 'storm'"):
        stream_lines(rows, tmp_path / "d.db", source, options=LineOptions(emit="on-alarm", alarms=("strom",)))
    with pytest.raises(ConfigError, match="--key offset"):
        LineOptions(key="offset")
    named = tmp_path / "named.jsonl"
    named.write_text(source.read_text().replace('"id"', '"class"'))
    with pytest.raises(ConfigError, match="--key class: answers have a field of this name"):
        stream_lines(rows, tmp_path / "d.db", named, options=LineOptions(key="class"))
    with pytest.raises(ConfigError, match="threshold must be a probability"):
        LineOptions(threshold=float("nan"))
    with pytest.raises(ConfigError, match="go together"):
        LineOptions(emit="on-alarm")
    with pytest.raises(ConfigError, match="did you mean 'on-alarm'"):
        LineOptions(emit="on-alarms")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", r"line 1: not JSON"),
        ("[1]", "line 1: expected an object"),
        ('{"values": [1, 2]}', "line 1: no field 'id'; the row has 'values'"),
        ('{"id": 1.5, "values": [1, 2]}', "must be text or a whole number"),
        ('{"id": "a"}', "line 1: no field 'values'"),
        ('{"id": "a", "values": [1]}', "list of 2 numbers"),
        ('{"id": "a", "values": [1, "2"]}', "must be a number; got '2'"),
        ('{"id": "a", "values": [1, NaN]}', "line 1, stream 'a': .*nan.*Nothing of its batch"),
        ('{"id": "a", "values": [1, 1' + "0" * 400 + "]}", "that no model can hold"),
        ("[" * 100_000, "line 1: not JSON"),
    ],
)
def test_a_bad_line_is_named_and_changes_nothing(
    rows: RowPath, tmp_path: Path, line: str, words: str
) -> None:
    good = '{"id": "a", "values": [1, 2]}'
    source, out, state = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "states.db"
    source.write_text(f"{good}\n{line}\n")
    with pytest.raises(DataError, match=words):
        stream_lines(rows, state, source, out=out)
    assert out.read_bytes() == b""
    source.write_text(f"{good}\n{good}\n")
    assert stream_lines(rows, state, source, out=out) == 2


def test_files_that_do_not_belong_together_are_left_alone(rows: RowPath, tmp_path: Path) -> None:
    source, out, state = write_input(tmp_path / "in.jsonl", 5), tmp_path / "out.jsonl", tmp_path / "states.db"
    out.write_text("dear diary\n")
    with pytest.raises(DataError, match="no output of `aaren stream`"):
        stream_lines(rows, state, source, out=out)
    assert out.read_text() == "dear diary\n"
    out.write_text('{"offset": "last"}\n')
    with pytest.raises(DataError, match="no output of `aaren stream`"):
        stream_lines(rows, state, source, out=out)
    for place in (512, 99999999):  # a killed process leaves no more than a batch
        out.write_text(f'{{"offset": {place}}}\n')
        with pytest.raises(DataError, match="do not belong together"):
            stream_lines(rows, state, source, out=out)
        assert out.stat().st_size > 0
    for same in (source, state):
        with pytest.raises(ConfigError, match="is the input or the state"):
            stream_lines(rows, state, source, out=same)
    stream_lines(rows, state, source)
    source.write_text("")
    with pytest.raises(DataError, match="has 0 lines, but 5 were taken in before"):
        stream_lines(rows, state, source)


def test_an_old_output_beside_a_new_state_is_left_alone(rows: RowPath, tmp_path: Path) -> None:
    source, out = write_input(tmp_path / "in.jsonl", 5), tmp_path / "out.jsonl"
    stream_lines(rows, tmp_path / "old.db", source, out=out)
    before = out.read_bytes()
    for _ in range(2):  # the second time the state is there, and has taken in nothing
        with pytest.raises(DataError, match="written beside another state"):
            stream_lines(rows, tmp_path / "new.db", source, out=out)
        assert out.read_bytes() == before
    assert stream_lines(rows, tmp_path / "new.db", source, out=tmp_path / "new.jsonl") == 5
    assert (tmp_path / "new.jsonl").read_bytes() == before
    assert stream_lines(rows, tmp_path / "old.db", source, out=out) == 0


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "values": "x" * 10**6},
        {"id": "a", "values": [1] * 10**6},
        {"id": "a", "values": [1, "x" * 10**6]},
        {"id": ["x" * 10**6], "values": [1, 2]},
        {"x" * 10**6: 1},
        "x" * 10**6,
        {"id": "x" * 10**6, "values": [1, float("nan")]},
    ],
)
def test_a_long_line_is_refused_in_few_words(rows: RowPath, tmp_path: Path, row: object) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(row))
    with pytest.raises(DataError, match="line 0") as refused:
        stream_lines(rows, tmp_path / "states.db", source)
    assert len(str(refused.value)) < 1000


def run_until_killed(rows: RowPath, folder: Path, source: Path, more_bytes: int) -> None:
    """Run in a process of its own, which is killed as soon as its output has grown by so much."""
    out = folder / "out.jsonl"
    wanted = (out.stat().st_size if out.exists() else 0) + more_bytes
    child = os.fork()
    if child == 0:
        try:
            stream_lines(rows, folder / "states.db", source, out=out, options=KILLED)
        finally:
            os._exit(1)
    while not (out.exists() and out.stat().st_size >= wanted):
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended by itself"
        time.sleep(0.0005)
    time.sleep(more_bytes % 7 / 1000)  # in the middle of a batch, of its writing or of its commit
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


KILLED = LineOptions(batch=8, capacity=16)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.long)])
def test_killed_at_random_moments_every_answer_comes_once(rows: RowPath, tmp_path: Path, kills: int) -> None:
    source = write_input(tmp_path / "in.jsonl", 120 * kills, keys=40)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    stream_lines(rows, whole / "states.db", source, out=whole / "out.jsonl", options=KILLED)
    moments = random.Random(kills)
    for _ in range(kills):
        run_until_killed(rows, killed, source, moments.randint(1, 5_000))
    stream_lines(rows, killed / "states.db", source, out=killed / "out.jsonl", options=KILLED)
    assert (killed / "out.jsonl").read_bytes() == (whole / "out.jsonl").read_bytes()
    assert states(killed / "states.db") == states(whole / "states.db")


def states(path: Path) -> list[tuple[str, bytes]]:
    import sqlite3

    db = sqlite3.connect(path)
    found = db.execute("select key, content from state order by key").fetchall()
    db.close()
    return found


def test_a_followed_file_is_answered_while_it_grows(rows: RowPath, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": "a", "values": [1, 2]}\n{"id": "a", "val')
    child = os.fork()
    if child == 0:
        try:
            stream_lines(rows, tmp_path / "states.db", source, out=out, is_followed=True)
        finally:
            os._exit(1)
    try:
        wait_for(lambda: out.exists() and len(read(out)) == 1)
        with source.open("a") as more:
            more.write('ues": [3, 4]}\n')
        wait_for(lambda: len(read(out)) == 2)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def follow(rows: RowPath, state: Path, source: Path) -> tuple[threading.Thread, list[BaseException]]:
    """Follow a file in a thread, and keep what ends it."""
    ends: list[BaseException] = []

    def work() -> None:
        try:
            stream_lines(rows, state, source, out=state.with_suffix(".jsonl"), is_followed=True)
        except DataError as error:
            ends.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, ends


@pytest.mark.parametrize("change", ["cut", "replaced", "removed"])
def test_a_followed_file_that_does_not_only_grow_is_left(rows: RowPath, tmp_path: Path, change: str) -> None:
    source, state = write_input(tmp_path / "in.jsonl", 3), tmp_path / "states.db"
    thread, ends = follow(rows, state, source)
    out = state.with_suffix(".jsonl")
    wait_for(lambda: out.exists() and len(read(out)) == 3)
    if change == "cut":
        os.truncate(source, 10)
    else:
        source.rename(tmp_path / "in.jsonl.1")
    if change == "replaced":
        write_input(source, 9)
    thread.join(60)
    assert "was cut short, removed or replaced after 3 lines" in str(ends[0])
    if change != "cut":  # what the old one still has is not lost
        with (tmp_path / "in.jsonl.1").open("a") as more:
            more.write('{"id": "a", "values": [1, 2]}\n')
        assert stream_lines(rows, state, tmp_path / "in.jsonl.1", out=out) == 1


def test_a_followed_file_with_fewer_lines_than_were_taken_in_is_another(
    rows: RowPath, tmp_path: Path
) -> None:
    source, state = write_input(tmp_path / "in.jsonl", 5), tmp_path / "states.db"
    stream_lines(rows, state, source)
    write_input(source, 4)
    with pytest.raises(DataError, match="has 4 lines, but 5 were taken in before"):
        stream_lines(rows, state, source, is_followed=True)


def test_a_line_without_end_is_read_once(
    rows: RowPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aaren.stream.lines.CHUNK", 16)
    source = tmp_path / "in.jsonl"
    source.write_text(
        '{"id": "a", "values": [1, 2], "text": "' + "x" * 500 + '"}\n{"id": "b", "values": [1, 2]}'
    )
    assert stream_lines(rows, tmp_path / "states.db", source, out=tmp_path / "out.jsonl") == 2
    assert [answer["id"] for answer in read(tmp_path / "out.jsonl")] == ["a", "b"]


def wait_for(is_true: Any) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_metrics_are_prometheus_text_on_loopback(rows: RowPath, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="needs aaren[serve]")
    from aaren.serve.metrics import StreamMetrics

    metrics = StreamMetrics()
    assert b"aaren_stream_items_total 0" in metrics.text()
    with metrics.serving(0) as port:
        source = write_input(tmp_path / "in.jsonl", 30)
        stream_lines(rows, tmp_path / "states.db", source, on_batch=metrics.count)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        with pytest.raises(ConfigError, match=f"metrics on port {port}"), StreamMetrics().serving(port):
            pass
    for line in ("items_total 30", "outputs_total 30", "streams 7", "lag_bytes 0", "latency_seconds_count 1"):
        assert f"\naaren_stream_{line}.0\n" in text
    assert 'aaren_stream_latency_seconds_bucket{le="0.01"}' in text
    assert threading.active_count() == 1 or all("serve" not in one.name for one in threading.enumerate())


def other_paths() -> Iterator[Any]:
    forecaster = StreamingForecaster(StreamingForecasterConfig(num_series=2, horizon_steps=2, **SMALL)).eval()
    learned: Any = {"columns": ["x", "y"], "mean": [100.0, 0.0], "deviation": [10.0, 1.0]}
    good = {"date": "2026-01-31 07:00", "x": 101.0, "y": 1}
    yield ForecastRows(forecaster, learned), good, {**good, "date": "9" * 30}, "must be a date"
    yield ForecastRows(forecaster, learned), good, {**good, "x": None}, "'x' must be a number; got None"
    events = EventModel(EventModelConfig(num_marks=2, **SMALL)).eval()
    named: Any = {"mark_names": ["buy", "sell"]}
    good = {"time": 1.0, "mark": "sell"}
    yield EventRows(events, named), good, {"time": 2.0, "mark": "by"}, "unknown mark 'by'"
    yield EventRows(events, named), good, good, "times must be finite and increase"
    policy = DecisionModel(DecisionModelConfig(state_size=2, action_size=1, **SMALL)).eval()
    yield ObservationRows(policy), {"observation": [0, 1]}, {"observation": 1}, "list of 2 numbers"


@pytest.mark.parametrize("case", range(5))
def test_rows_of_every_setting(tmp_path: Path, case: int) -> None:
    path, good, bad, words = list(other_paths())[case]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps({"id": "a", **good}) + "\n")
    stream_lines(path, tmp_path / "states.db", source, out=out)
    (answer,) = read(out)
    found = {name for name in answer if name not in ("offset", "id")}
    assert found in ({"forecast"}, {"next_time", "mark", "probability"}, {"action"})
    if found == {"forecast"}:
        assert 50.0 < answer["forecast"]["x"][0] < 150.0  # in the unit of the row
    with source.open("a") as more:
        more.write(json.dumps({"id": "a", **bad}) + "\n")
    with pytest.raises(DataError, match=words):
        stream_lines(path, tmp_path / "states.db", source, out=out)
    if not path.names:
        with pytest.raises(ConfigError, match="choose nothing"):
            stream_lines(path, tmp_path / "b.db", source, options=LineOptions(emit="on-decision"))


@pytest.mark.slow
def test_the_command_answers_a_pipe(tmp_path: Path) -> None:
    run = tmp_path / "run"
    choices = ["epochs=1", "validation_windows=8"]
    config = make_run(
        "forecasting",
        "seasonal",
        model="streaming",
        profile="smoke",
        seed=0,
        data_file="",
        assignments=choices,
    )
    train(config, run)
    columns = open_rows(run).columns  # type: ignore[attr-defined]
    lines = [
        json.dumps({"sensor": f"s{k % 2}", "ts": f"2026-01-01 {k:02}:00", **dict.fromkeys(columns, 1.0 + k)})
        for k in range(4)
    ]
    words = [sys.executable, "-m", "aaren", "stream", str(run), "--state", str(tmp_path / "states.db")]
    words += ["--key", "sensor", "--time", "ts", "--metrics", "0"]
    done = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [0, 1, 2, 3]
    assert "metrics http://127.0.0.1:" in done.stderr
    assert set(json.loads(done.stdout.splitlines()[0])["forecast"]) == set(columns)
