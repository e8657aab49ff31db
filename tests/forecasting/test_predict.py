import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.engine.use import predict_run
from aaren.errors import DataError
from aaren.forecasting.calendar import continue_dates
from aaren.forecasting.data import time_marks
from aaren.forecasting.predict import ForecastRows
from aaren.stream.saved import load_model


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, dtype="datetime64[s]")


def test_dates_go_on_at_the_usual_step_even_after_a_gap() -> None:
    known = dates("2024-01-01T00:00", "2024-01-01T00:15", "2024-01-01T00:30", "2024-01-01T02:00")
    assert continue_dates(known, 2).tolist() == dates("2024-01-01T02:15", "2024-01-01T02:30").tolist()


def test_months_keep_their_day() -> None:
    assert continue_dates(dates("2023-11-01", "2023-12-01", "2024-01-01"), 3).tolist() == (
        dates("2024-02-01", "2024-03-01", "2024-04-01").tolist()
    )


def test_one_row_has_no_step() -> None:
    with pytest.raises(DataError, match=r"got 1 row\(s\), need 2"):
        continue_dates(dates("2024-01-01"), 3)


def write_hours(path: Path, dates: NDArray[np.datetime64], rows: NDArray[np.float64]) -> Path:
    lines = [
        f"{str(date).replace('T', ' ')},{row[0]},{row[1]}" for date, row in zip(dates, rows, strict=True)
    ]
    path.write_text("\n".join(["date,load,wind", *lines]) + "\n")
    return path


def test_a_streaming_run_goes_live_in_the_units_of_the_data(tmp_path: Path) -> None:
    hours = np.arange(900)
    dates = np.datetime64("2024-01-01T00", "s") + hours * np.timedelta64(3600, "s")
    rows = np.stack([100.0 + 20.0 * np.sin(hours / 4.0), 5.0 + np.cos(hours / 7.0)], axis=1)
    known = write_hours(tmp_path / "known.csv", dates, rows)
    run = make_run(
        "forecasting", model="streaming", profile="smoke", data_file=str(known), assignments=["horizon=24"]
    )
    train(run, tmp_path / "run")
    new = write_hours(tmp_path / "new.csv", dates[:96], rows[:96])
    predict_run(tmp_path / "run", source=new, target=tmp_path / "forecast.csv")
    said = np.loadtxt(tmp_path / "forecast.csv", delimiter=",", skiprows=1, usecols=(1, 2))
    stream = load_model(tmp_path / "run" / "model").stream()
    for row, marks in zip(rows[:96], time_marks(dates[:96]), strict=True):
        forecast = stream.push(row, marks=marks)
    assert forecast.numpy() == pytest.approx(said, rel=1e-3)


def test_a_lagged_run_forecasts_files_and_streams_rows(tmp_path: Path) -> None:
    """The estimator's model as a run: errors and intervals in the record; file, session and rows agree."""
    hours = np.arange(1200)
    dates = np.datetime64("2024-01-01T00", "s") + hours * np.timedelta64(3600, "s")
    noise = np.random.default_rng(0).normal(size=(1200, 2))
    rows = np.stack([100.0 + 20.0 * np.sin(hours * np.pi / 12), 5.0 + np.cos(hours / 7.0)], axis=1) + noise
    known = write_hours(tmp_path / "known.csv", dates, rows)
    run = make_run(
        "forecasting", model="lagged-base", profile="smoke", data_file=str(known), assignments=["horizon=24"]
    )
    record = train(run, tmp_path / "run")
    scores = record.metrics["test"]
    assert 0.0 < scores["mse"] < 0.9
    assert 0.6 < scores["coverage_80"] < scores["coverage_95"] <= 1.0
    assert scores["crps"] < scores["mae"]
    assert {"profile", "weights", "origin_mse"} <= set(record.facts)
    new = write_hours(tmp_path / "new.csv", dates[:400], rows[:400])
    predict_run(tmp_path / "run", source=new, target=tmp_path / "forecast.csv")
    said = np.loadtxt(tmp_path / "forecast.csv", delimiter=",", skiprows=1, usecols=(1, 2))
    lines = new.read_text().splitlines()  # rows and columns that the forecast does not use may be anything
    lines = [lines[0] + ",remark", *(f"{line},?" for line in ["2020-01-01,,x", *lines[2:]])]
    new.write_text("\n".join(lines) + "\n")
    predict_run(tmp_path / "run", source=new, target=tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "forecast.csv").read_text()
    new.write_text("\n".join([*lines[:-1], lines[-1].replace(lines[-1].split(",")[1], "", 1)]) + "\n")
    with pytest.raises(DataError, match=r"line 401, column 'load': expected a finite number"):
        predict_run(tmp_path / "run", source=new, target=tmp_path / "again.csv")
    stream = load_model(tmp_path / "run" / "model").stream()
    for row, date in zip(rows[:400], dates[:400], strict=True):
        forecast = stream.push(row, when=date.item())
    assert forecast.numpy() == pytest.approx(said, rel=1e-3)
    preprocessing = json.loads((tmp_path / "run" / "preprocessing.json").read_text())
    path = ForecastRows(load_model(tmp_path / "run" / "model"), preprocessing)
    row = {"date": str(dates[7]), "load": rows[7, 0], "wind": rows[7, 1]}
    _, extras = path.read(row, "date")
    assert extras == {"slot": 7}
