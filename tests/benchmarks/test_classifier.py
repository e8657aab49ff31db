"""The table of classifiers: what it judges, and by which numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import classifier
from harness import digests, resumed, run
from records import BenchRecord, Row


def made_up(**accuracies: float) -> BenchRecord:
    names = {"ours": "Aaren", "mini": "MiniRocket", "dtw": "1-NN DTW", "logistic": "logistic regression"}
    rows: list[Row] = []
    for short, accuracy in accuracies.items():
        for dataset in ("BasicMotions", "Handwriting"):
            row: Row = {
                "dataset": dataset,
                "contender": names[short],
                "seed": 0,
                "train_cases": 150,
                "length": 152,
            }
            row |= {f"accuracy_{quarter:.2f}": accuracy for quarter in classifier.QUARTERS}
            row |= {f"calibration_{quarter:.2f}": 0.05 for quarter in classifier.QUARTERS}
            row |= {"fit_cpu_seconds": 3.0, "model_bytes": 1e5, "sample_cpu_seconds": 1e-4}
            row |= {"state_bytes": 4e4, "stop_accuracy": accuracy - 0.01, "stop_share": 0.5}
            rows.append(row)
    return BenchRecord(kind="classifier", command="made up", settings={}, measurements=rows)


def test_tables_have_every_contender() -> None:
    tables = classifier.tables(made_up(ours=0.9, mini=0.905, dtw=0.8, logistic=0.7))
    assert len(tables) == 5
    assert "| Handwriting | 90.0 | 90.5 | 80.0 | 70.0 |" in tables[0]


def test_a_run_resumes_from_its_record(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    record = replace(made_up(ours=0.9, mini=0.9), sources=digests(classifier.BENCHMARK))
    record.write(path)
    settings = classifier.ClassifierSettings(
        datasets=("BasicMotions", "Handwriting"), contenders=("Aaren", "MiniRocket"), seeds=(0,), record=path
    )
    assert run(classifier.BENCHMARK, settings).measurements == record.measurements
    replace(record, sources={"aaren/classification": "older"}).write(path)
    assert resumed(classifier.BENCHMARK, path).measurements == []


def test_sets_kept_aside_are_in_no_mean() -> None:
    record = made_up(ours=0.9, mini=0.9)
    aside = {**record.measurements[0], "dataset": "GunPoint", "accuracy_1.00": 0.1}
    record.measurements.append(aside)
    means = classifier.seed_means(record)
    assert classifier.common(means, "Aaren") == ["BasicMotions", "Handwriting"]
    assert classifier.average(means, "Aaren", "accuracy_1.00") == pytest.approx(0.9)


def test_calibration_error() -> None:
    sure = np.array([[0.9, 0.1]] * 10)
    assert classifier.calibration_error(sure, np.arange(10) < 9) == pytest.approx(0.0)
    assert classifier.calibration_error(sure, np.arange(10) < 5) == pytest.approx(0.4)


def test_a_set_that_comes_with_aeon_is_measured() -> None:
    pytest.importorskip("aeon")
    pytest.importorskip("sklearn")
    split = classifier.load("ItalyPowerDemand")
    split = split._replace(test=split.test[:40], test_labels=split.test_labels[:40])
    row = classifier.measure_one("ItalyPowerDemand", split, "Aaren, small", 0)
    assert row["accuracy_1.00"] > 0.85
    assert row["state_bytes"] < 8000
    assert 0.0 < row["stop_share"] <= 1.0
