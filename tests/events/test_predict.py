"""From a user's file to a trained run to forecasts for a new file."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.engine.use import evaluate_run, predict_run
from aaren.errors import DataError
from aaren.stream.saved import load_model


def write_csv(path: Path, rows: list[tuple[object, ...]], header: str = "sequence,time,mark") -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def some_rows(sequences: int = 10, events: int = 8, step: float = 1.0) -> list[tuple[object, ...]]:
    rng = np.random.default_rng(0)
    return [
        (f"user{i}", round(float(time), 9), ["buy", "look", "leave"][int(rng.integers(3))])
        for i in range(sequences)
        for time in np.cumsum(rng.uniform(0.1, 2.0, events) * step)
    ]


def test_own_files_are_trained_scored_and_spoken_about(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "visits.csv", some_rows())
    assignments = ["epochs=2", "width=16", "ff_width=16", "own.unit=hours"]
    run = make_run("events", data_file=str(path), profile="cpu", assignments=assignments)
    record = train(run, tmp_path / "run")
    assert record.facts["unit"] == "hours"
    assert record.facts["marks"] == 3
    assert math.isfinite(record.metric("test.accuracy"))
    _, again = evaluate_run(tmp_path / "run")
    assert again["nll"] == pytest.approx(record.metric("test.nll"))
    new = write_csv(
        tmp_path / "new.csv",
        [
            ("zoe", 1.0, "look"),
            ("adam", 5.0, "buy"),
            ("zoe", 2.5, "buy"),
            ("adam", 5.5, "look"),
            ("zoe", 3.0, "leave"),
        ],
    )
    predict_run(tmp_path / "run", source=new, target=tmp_path / "next.csv")
    with (tmp_path / "next.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["sequence"] for row in rows] == ["zoe", "adam"]
    assert [float(row["last_time"]) for row in rows] == [3.0, 5.5]
    for row in rows:
        low, middle, high = (float(row[f"next_time_q{level}"]) for level in ("05", "50", "95"))
        assert float(row["last_time"]) < low < middle < high
        assert row["mark"] in ("buy", "look", "leave")
        assert 1 / 3 <= float(row["mark_probability"]) <= 1.0
    # The same run, live: times in the unit of the data, marks by the numbers in preprocessing.json.
    names = json.loads((tmp_path / "run" / "preprocessing.json").read_text())["mark_names"]
    stream = load_model(tmp_path / "run" / "model").stream()
    for time, mark in ((1.0, "look"), (2.5, "buy"), (3.0, "leave")):
        law = stream.push(time, names.index(mark))
    assert 3.0 + float(law.gap.quantile(0.5)) == pytest.approx(float(rows[0]["next_time_q50"]), rel=1e-4)


def test_predicting_refuses_kinds_it_does_not_know(tmp_path: Path) -> None:
    rows = [(name, time, int(time * 7) % 2) for name, time, _ in some_rows()]
    path = write_csv(tmp_path / "numbers.csv", rows)
    run = make_run("events", data_file=str(path), model="renewal")
    train(run, tmp_path / "run")
    new = write_csv(tmp_path / "new.csv", [("a", 1.0, 0), ("a", 2.0, 2)])
    with pytest.raises(DataError, match=r"new.csv, line 3: mark 2 is outside 0..1"):
        predict_run(tmp_path / "run", source=new, target=tmp_path / "next.csv")
    bare = write_csv(tmp_path / "bare.csv", [("a", 1.0), ("a", 2.0)], header="sequence,time")
    with pytest.raises(DataError, match=r"no column 'mark', but the run was trained on 2 kinds"):
        predict_run(tmp_path / "run", source=bare, target=tmp_path / "next.csv")
    records = tmp_path / "new.json"
    records.write_text(json.dumps([{"time_since_start": [0.0, 1.0], "type_event": [0, 4], "dim_process": 5}]))
    with pytest.raises(DataError, match=r"marks go up to 4, but the run knows 0..1"):
        predict_run(tmp_path / "run", source=records, target=tmp_path / "next.csv")


def test_dates_in_give_dates_out(tmp_path: Path) -> None:
    rows = [
        (name, f"2026-03-01 {10 + hour:02}:{int(float(time)):02}:00", mark)
        for hour, (name, time, mark) in enumerate([("a", 1.0, "buy"), ("a", 9.0, "look"), ("a", 30.0, "buy")])
    ]
    rows = [(f"{name}{copy}", time, mark) for copy in range(6) for name, time, mark in rows]
    path = write_csv(tmp_path / "dated.csv", rows)
    run = make_run("events", data_file=str(path), profile="cpu", assignments=["model=markov"])
    train(run, tmp_path / "run")
    predict_run(tmp_path / "run", source=path, target=tmp_path / "next.csv")
    with (tmp_path / "next.csv").open() as file:
        found = next(csv.DictReader(file))
    assert found["last_time"] == "2026-03-01T12:30:00"
    assert "2026-03-01T12:30:00" < found["next_time_q05"] < found["next_time_q95"] < "2026-03-02"
