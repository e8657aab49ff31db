"""The examples for Flink and Kafka Streams in docs/integrations.md, as they stand there."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aaren.engine.use import open_rows
from aaren.integrations.pure import PureStep

pytestmark = pytest.mark.long
PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
FLINK_PYTHON = "AAREN_FLINK_PYTHON"

FLINK_DRIVER = """
import sys
from pyflink.datastream import StreamExecutionEnvironment
environment = StreamExecutionEnvironment.get_execution_environment()
environment.set_parallelism(2)
environment.set_python_executable(sys.executable)
with open(sys.argv[2]) as file:
    rows = environment.from_collection(file.read().splitlines(), Types.STRING())
for answer in stream(rows, sys.argv[1]).execute_and_collect():
    print("answer", answer)
"""

# What the example uses of Kafka Streams' API, by its names.
KAFKA = {
    "processor/api/Record": """package org.apache.kafka.streams.processor.api;
public class Record<K, V> {
  private final K key; private final V value;
  public Record(K key, V value) { this.key = key; this.value = value; }
  public K key() { return key; }
  public V value() { return value; }
  public <W> Record<K, W> withValue(W other) { return new Record<>(key, other); }
}""",
    "processor/api/Processor": """package org.apache.kafka.streams.processor.api;
public interface Processor<KIn, VIn, KOut, VOut> {
  default void init(ProcessorContext<KOut, VOut> context) {}
  void process(Record<KIn, VIn> record);
}""",
    "processor/api/ProcessorContext": """package org.apache.kafka.streams.processor.api;
public interface ProcessorContext<K, V> {
  <S> S getStateStore(String name);
  void forward(Record<K, V> record);
}""",
    "state/KeyValueStore": """package org.apache.kafka.streams.state;
public interface KeyValueStore<K, V> { V get(K key); void put(K key, V value); }""",
}
KAFKA_DRIVER = """
import java.util.*;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

public class Main {
  public static void main(String[] words) throws Exception {
    Map<String, byte[]> held = new HashMap<>();
    KeyValueStore<String, byte[]> store = new KeyValueStore<>() {
      public byte[] get(String key) { return held.get(key); }
      public void put(String key, byte[] value) { held.put(key, value.clone()); }
    };
    Streams streams = new Streams();
    streams.init(new ProcessorContext<String, float[]>() {
      @SuppressWarnings("unchecked") public <S> S getStateStore(String name) { return (S) store; }
      public void forward(Record<String, float[]> row) {
        System.out.println(row.key() + " " + row.value()[0] + " " + row.value()[1]);
      }
    });
    Scanner lines = new Scanner(System.in);
    while (lines.hasNextLine()) {
      String[] parts = lines.nextLine().split(" ");
      double[] sample = { Double.parseDouble(parts[1]), Double.parseDouble(parts[2]) };
      streams.process(new Record<>(parts[0], sample));
    }
  }
}
"""


def block(after: str) -> str:
    """Return the first block of code behind some words of the page."""
    text = PAGE.read_text(encoding="utf-8").partition(after)[2]
    return text.partition("```")[2].partition("\n")[2].partition("```")[0]


def history() -> list[dict[str, Any]]:
    return [{"id": f"s{place % 5}", "values": [float(place % 3), 1.0 + place % 7]} for place in range(60)]


def expected(run: Path) -> dict[str, list[dict[str, Any]]]:
    step, states, answers = PureStep(open_rows(run)), {}, {}  # type: ignore[var-annotated]  # by key
    for row in history():
        states[row["id"]], answer = step(states.get(row["id"], b""), row)
        answers.setdefault(row["id"], []).append(answer)
    return answers


def test_flink(run: Path, tmp_path: Path) -> None:
    python = os.environ.get(FLINK_PYTHON, "")
    if not python:
        pytest.importorskip("pyflink", reason=f"needs apache-flink, or {FLINK_PYTHON}")
        python = sys.executable
    script, rows = tmp_path / "streams.py", tmp_path / "rows.jsonl"
    script.write_text(block("With PyFlink") + FLINK_DRIVER)
    rows.write_text("".join(json.dumps(row) + "\n" for row in history()))
    folder = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"  # Flink asks `python` where it is
    done = subprocess.run(
        [python, script, run, rows], env={**os.environ, "PATH": folder}, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("answer "):
            answer = json.loads(line.partition(" ")[2])
            found.setdefault(answer.pop("id"), []).append(answer)
    assert found == expected(run)


def find_jna() -> Path:
    places = [
        *sorted(Path.home().glob(".m2/repository/net/java/dev/jna/jna/*/jna-*.jar")),
        Path("/usr/share/java/jna.jar"),
    ]
    found = [place for place in places if place.exists()]
    if not found or shutil.which("javac") is None:
        pytest.skip("needs javac and JNA")
    return found[-1]


def test_kafka_streams(run: Path, tmp_path: Path) -> None:
    jna = find_jna()
    subprocess.run([sys.executable, "-m", "aaren", "export", run, "-o", tmp_path / "model"], check=True)
    subprocess.run(["make", "-C", tmp_path / "model", "libaaren_model.so"], check=True, capture_output=True)
    sources = {f"org/apache/kafka/streams/{name}": text for name, text in KAFKA.items()}
    sources |= {"Streams": block("With Kafka Streams"), "Main": KAFKA_DRIVER}
    for name, text in sources.items():
        path = tmp_path / f"{name}.java"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(
        ["javac", "-cp", jna, *(f"{name}.java" for name in sources)], cwd=tmp_path, check=True, timeout=200
    )
    lines = "".join(f"{row['id']} {row['values'][0]} {row['values'][1]}\n" for row in history())
    words = ["java", "-cp", f"{jna}{os.pathsep}.", f"-Djna.library.path={tmp_path / 'model'}", "Main"]
    done = subprocess.run(
        words, cwd=tmp_path, input=lines, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[list[float]]] = {}
    for line in done.stdout.splitlines():
        key, *probabilities = line.split()
        found.setdefault(key, []).append([float(text) for text in probabilities])
    for key, answers in expected(run).items():
        wanted = [list(answer["probabilities"].values()) for answer in answers]
        assert [pytest.approx(one, abs=1e-6) for one in wanted] == found[key]
