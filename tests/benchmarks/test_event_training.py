"""The events' own benchmark: it runs, its calls train and step, and its targets judge."""

from pathlib import Path

import numpy as np
import pytest

from aaren.bench.publish import main
from aaren.bench.record import BenchRecord, Row, read_record
from event_training import (
    BENCHMARK,
    SHORT,
    draw,
    prepare_steps,
    prepare_updates,
    short_sequences,
    targets,
)


def _timed(what: str, case: str, contender: str, seconds: float) -> Row:
    return {"what": what, "case": case, "contender": contender, "median_seconds": seconds}


def test_sequences_have_the_lengths_of_stackoverflow() -> None:
    lengths = short_sequences(2_000).lengths
    assert lengths.min() == 41
    assert np.mean(lengths) == pytest.approx(72, abs=2)


@pytest.mark.parametrize("mixer", ["aaren", "softmax", "gru"])
def test_updates_learn_and_steps_step(mixer: str) -> None:
    updates = prepare_updates(mixer, short_sequences(32), 1)
    losses = [updates() for _ in range(6)]
    assert losses[-1] < losses[0]
    assert prepare_steps(mixer)() is not None


def test_every_promise_is_judged() -> None:
    rows = [
        _timed("update", SHORT, "Aaren", 1.0),
        _timed("update", SHORT, "Transformer", 1.1),
        _timed("update", "1,024 events each", "Aaren", 1.0),
        _timed("update", "1,024 events each", "Transformer", 2.0),
        _timed("step", "one stream", "Aaren", 1.4),
        _timed("step", "one stream", "GRU", 1.0),
        {"what": "padding", "case": "sin", "share": 0.25},
    ]
    record = BenchRecord(kind="train-events", command="", settings={}, measurements=rows)
    assert [target.verdict for target in targets(record)] == ["met", "missed", "met", "missed"]
    empty = BenchRecord(kind="train-events", command="", settings={}, measurements=[])
    assert {target.verdict for target in targets(empty)} == {"not run"}


@pytest.mark.long
def test_the_command_measures_prints_and_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    path = tmp_path / "events.json"
    main(BENCHMARK, ["--quick", "--record", str(path)])
    assert "update, StackOverflow's lengths" in capsys.readouterr().out
    record = read_record(path, kind="train-events")
    assert record.find(what="step", contender="GRU") is not None
    png, _ = draw(record, tmp_path / "events")
    assert png.exists()
