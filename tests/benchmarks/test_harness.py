"""The harness: timing in turns, void and stale records, tables."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

import harness
import records
from aaren.errors import DataError
from harness import Benchmark, Measured, OnStep, main, table, time_in_turns
from records import BenchRecord, describe, read_record


def measure(seconds: float, on_step: OnStep) -> Measured:
    on_step(0, 1, "sleep")
    return {}, [{"what": "sleep", "seconds": seconds}]


TOY = Benchmark(
    kind="toy",
    command="python benchmarks/toy.py",
    sources=("aaren/errors.py", "aaren/ops/cpu"),
    settings=1.0,
    quick=0.1,
    measure=measure,
    tables=lambda record: [
        table("Toy", ["", "seconds"], [[str(value) for value in record.measurements[0].values()]])
    ],
)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Shares of the CPU that other processes use, as the harness sees them."""
    shares = {"share_before": 0.02, "share_during": 0.02}
    monkeypatch.setattr(harness.OtherWork, "__init__", lambda _: None)
    monkeypatch.setattr(harness.OtherWork, "shares", lambda _: dict(shares))
    return shares


def test_calls_take_turns_and_a_slow_one_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    timings = time_in_turns(calls, seconds=0.0)
    assert order == ["a", "b"] * 4  # a warm-up, then three
    assert timings["a"].repeats == 3
    monkeypatch.setattr(harness, "SLOW_SECONDS", 0.01)
    slow = time_in_turns({**calls, "slow": lambda: time.sleep(0.02)}, seconds=0.0)
    assert (slow["slow"].repeats, slow["a"].repeats) == (1, 3)
    assert slow["slow"].median >= 0.02


def test_a_record_is_written_shown_and_read_again(
    tmp_path: Path, others: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.json"
    main(TOY, ["--record", str(path)])
    shown = capsys.readouterr().out
    assert "| sleep | 1.0 |" in shown
    assert "stale" not in shown
    record = read_record(path, kind="toy")
    assert record.measurements == [{"what": "sleep", "seconds": 1.0}]
    assert set(record.sources or {}) == set(TOY.sources)
    assert record.other_work == others
    main(TOY, ["--show", str(path)])
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("when", ["share_before", "share_during"])
def test_a_busy_machine_gives_no_record_of_times(tmp_path: Path, others: dict[str, float], when: str) -> None:
    others[when] = 0.5
    path = tmp_path / "toy.json"
    with pytest.raises(SystemExit):
        main(TOY, ["--record", str(path)])
    assert not path.exists()
    main(TOY, ["--quick"])  # which may be looked at
    main(replace(TOY, is_timed=False), ["--record", str(path)])
    assert read_record(path).other_work is None


def test_a_record_is_stale_when_one_of_its_sources_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aaren" / "ops").mkdir(parents=True)
    for name in ("errors.py", "ops/scan.c", "ops/notes.txt"):
        (tmp_path / "aaren" / name).write_text(name)
    monkeypatch.setattr(records, "PACKAGES", tmp_path)
    sources = {name: records.digest(name) for name in ("aaren/errors.py", "aaren/ops")}
    record = BenchRecord(kind="toy", command="toy", settings={}, measurements=[], sources=sources)
    (tmp_path / "aaren" / "ops" / "notes.txt").write_text("no source")
    assert record.changed == []
    (tmp_path / "aaren" / "ops" / "scan.c").write_text("changed")
    assert record.changed == ["aaren/ops"]
    assert "**stale: aaren/ops has changed since**" in describe(record)
    assert replace(record, sources=None).changed


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', "{}"])
def test_a_damaged_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "toy.json"
    path.write_text(text)
    with pytest.raises(DataError):
        read_record(path)
    with pytest.raises(DataError):
        read_record(tmp_path / "nowhere.json")


def test_figures_of_equal_records_are_equal(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a", "b"):
        lines = {"Time": [("ours", [1.0, 2.0], [1.0, 2.0]), ("theirs", [1.0, 2.0], [1.0, 4.0])]}
        harness.draw(lines, tmp_path / name, x="items", y=["seconds"], caption="toy")
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.svg").read_text()
    assert "theirs" in (tmp_path / "a.svg").read_text()
