"""Streams on Spark Structured Streaming: a real local[2], a driver that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aaren.engine.use import open_rows
from aaren.integrations.pure import PureStep
from pool import train_model

SECONDS = 900  # for a driver, on a busy machine


def with_spark(test: Any) -> Any:
    """Mark a test that starts Spark."""
    return pytest.mark.long(pytest.mark.timeout(2 * SECONDS)(test))


DRIVER = """
import sys
from pyspark.sql import SparkSession
from aaren.integrations.spark import configure, stream
run, source, checkpoint, out, most, expire = sys.argv[1:]
session = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC").getOrCreate()
)
configure(session)
rows = (
    session.readStream.schema("id string, ts timestamp, values array<double>")
    .option("maxFilesPerTrigger", int(most)).json(source)
)
if float(expire):
    rows = rows.withWatermark("ts", "1 second")
answers = stream(rows, run, key="id", order="ts", expire_after_seconds=float(expire) or None)
query = (
    answers.writeStream.format("json").outputMode("append").option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start(out)
)
query.awaitTermination()
"""


def start(*words: object) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *map(str, words)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finish(driver: "subprocess.Popen[str]") -> str:
    try:
        said, complained = driver.communicate(timeout=SECONDS)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
    assert driver.returncode == 0, complained[-4000:]
    return said


def committed(out: Path) -> list[dict[str, Any]]:
    """Return the rows of the files that the sink's log names."""
    found = []
    logs = sorted((out / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.name.partition(".")[0]))
    for log in logs:
        for line in log.read_text().splitlines()[1:]:
            path = Path(json.loads(line)["path"].removeprefix("file://"))
            found += [json.loads(row) for row in path.read_text().splitlines()]
    return found


def write_history(folder: Path, *, files: int, keys: int, rows_per_file: int) -> list[dict[str, Any]]:
    folder.mkdir()
    history = []
    for number in range(files):
        some = []
        for place in range(rows_per_file):
            count = number * rows_per_file + place
            when = (datetime(2026, 1, 1) + timedelta(seconds=count)).isoformat() + ".000Z"
            some.append(
                {"id": f"s{place % keys}", "ts": when, "values": [float(count % 5), 0.25 * (count % 9)]}
            )
        (folder / f"{number:03}.json").write_text("".join(json.dumps(row) + "\n" for row in some))
        os.utime(folder / f"{number:03}.json", (1.7e9 + number, 1.7e9 + number))
        history += some
    return history


@pytest.fixture(autouse=True)
def needs_spark() -> None:
    pytest.importorskip("pyspark", reason="needs aaren[spark] and Java 17")


@with_spark
def test_a_killed_driver_goes_on_exactly(tmp_path: Path) -> None:
    """With the model of benchmarks/pool.py, which measures the speed: 4 layers of width 64."""
    train_model(tmp_path)
    run = tmp_path / "run"
    history = write_history(tmp_path / "rows", files=6, keys=20, rows_per_file=100)
    step, states, expected = PureStep(open_rows(run)), {}, []  # type: ignore[var-annotated]  # by key
    for row in history:
        states[row["id"]], answer = step(states.get(row["id"], b""), row)
        expected.append((row["id"], row["ts"][11:19], answer))
    words = (run, tmp_path / "rows", tmp_path / "checkpoint", tmp_path / "out", 1, 0)
    driver = start(*words)
    commits = tmp_path / "checkpoint" / "commits"
    deadline = time.monotonic() + SECONDS
    try:
        while not (commits / "1").exists():
            assert driver.poll() is None, driver.communicate()[1][-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    finish(start(*words))
    found = [(row["id"], row["ts"][11:19], json.loads(row["answer"])) for row in committed(tmp_path / "out")]
    assert sorted(found, key=str) == sorted(expected, key=str)


@with_spark
def test_streams_expire_by_event_time(run: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    values = [1.0, 2.0]
    for number, (key, when) in enumerate(
        [("a", "00:00:00"), ("b", "05:00:00"), ("b", "05:00:01"), ("a", "05:00:02")]
    ):
        content = {"id": key, "ts": f"2026-01-01T{when}.000Z", "values": values}
        (rows / f"{number}.json").write_text(json.dumps(content) + "\n")
        os.utime(rows / f"{number}.json", (1.7e9 + number, 1.7e9 + number))
    finish(start(run, rows, tmp_path / "checkpoint", tmp_path / "out", 1, 3600))
    found = {row["ts"][11:19]: row["answer"] for row in committed(tmp_path / "out")}
    assert found["05:00:02"] == found["00:00:00"]  # it began anew
    assert found["05:00:01"] != found["05:00:00"]


class Timers(list[int]):
    """Stands for Spark's handle of one key."""

    listTimers = list.copy  # noqa: N815  # Spark's names
    registerTimer, deleteTimer = list.append, list.remove  # noqa: N815


def test_a_row_that_comes_late_does_not_shorten_the_life_of_its_stream() -> None:
    pytest.importorskip("pyspark", reason="needs aaren[spark]")
    from aaren.integrations.spark import _Streams

    streams, timers = _Streams(b"", "id", "ts", "", 60.0), Timers()
    streams._handle = timers
    for second, expected in ((10, 70), (5, 70), (10, 70), (12, 72)):
        streams._set_timer(datetime(1970, 1, 1, 0, 0, second))
        assert timers == [1000 * expected]
