import json
from pathlib import Path

import pytest
import torch

import data_loading
from aaren.bench.publish import main, page_text
from aaren.bench.record import BenchRecord, number, read_record
from aaren.engine.presets import make_run
from cpu_runs import DATASETS, choose_dataset, cpu_run


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def record_of(*rows: dict[str, object]) -> BenchRecord:
    return BenchRecord(kind="data", command="x", settings={}, measurements=list(rows))  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.slow
def test_the_command_prints_both_tables_and_writes_a_record(
    empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = empty / "record.json"
    main(data_loading.BENCHMARK, ["--quick", "--record", str(path)])
    shown = capsys.readouterr().out
    assert "ETTm1 (generated, of its size) and 12 loaders, first time" in shown
    assert "not measured:" in shown
    record = read_record(path, kind="data")
    rollout = record.find(what="rollout")
    assert rollout is not None
    assert rollout["reason"] == "no policy rl/zoo_sac_Hopper.npz on disk"
    shares = {row["setting"]: row for row in record.measurements if row["what"] == "batch"}
    assert set(shares) == {"forecasting", "classification", "events", "rl"}
    assert all(row["share"] > 0 for row in shares.values())  # type: ignore[operator]


@pytest.mark.slow
def test_rollouts_are_measured_where_a_policy_is(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    row = data_loading._measure_rollout(2_000)
    assert row.get("reason") is None
    assert number(row, "steps") >= 2_000
    assert number(row, "seconds") > 0


@pytest.mark.parametrize("setting", DATASETS)
@pytest.mark.usefixtures("empty")
def test_every_setting_loads_batches_and_makes_real_updates(setting: str) -> None:
    run = cpu_run(setting)
    deterministic = torch.are_deterministic_algorithms_enabled()
    with data_loading.batch_and_step(run) as measured:
        assert torch.are_deterministic_algorithms_enabled()  # as in training
        assert measured.model == "aaren, cpu"
        assert measured.dataset == choose_dataset(setting)
        assert len(measured.load()) == data_loading.BATCHES
        losses = [float(measured.step()) for _ in range(2 * data_loading.BATCHES)]
    assert torch.are_deterministic_algorithms_enabled() == deterministic
    half = data_loading.BATCHES
    assert sum(losses[-half:]) < sum(losses[:half])  # the same batches again: the weights have moved


@pytest.mark.usefixtures("empty")
def test_a_run_without_its_data_is_a_row_with_the_reason() -> None:
    run = make_run("forecasting", "ETTh1")
    (row,) = data_loading._measure_batch("forecasting", run, 0.1)
    assert row["reason"] == "ETTh1 cannot be opened here: aaren data verify ETTh1"  # no path in a record
    assert "share" not in row


def test_tables_say_what_was_missed_and_what_was_not_measured() -> None:
    slow = {
        "what": "load",
        "when": "cached",
        "source": "s",
        "loaders": 12,
        "seconds": 3.0,
        "target_seconds": 2.0,
    }
    gap = {"what": "rollout", "asked_steps": 100_000, "reason": "no policy"}
    batch = {
        "what": "batch",
        "setting": "rl",
        "dataset": "d",
        "model": "m",
        "batch_size": 64,
        "load_seconds": 0.01,
        "step_seconds": 0.1,
        "share": 0.1,
        "target_share": 0.05,
    }
    first, second = data_loading.tables(
        record_of(slow, gap, batch, {"what": "batch", "setting": "events", "reason": "why"})
    )
    assert first.rows[0][-1].text == "NO"
    assert first.rows[1][1].text == "–"
    assert first.notes == ["not measured: no policy"]
    assert [cell.text for cell in second.rows[0][5:]] == ["10.00%", "5%", "NO"]
    assert second.notes == ["not measured: why"]
    text = page_text(data_loading.BENCHMARK, record_of(slow, batch))
    assert "| rl | d, 64 | m | 10.0 ms | 100 ms | 10.00% | 5% | NO |" in text


def test_a_failing_process_is_reported() -> None:
    with pytest.raises(Exception, match="the measured process failed: ValueError: no"):
        data_loading._in_child("raise ValueError('no')", {})
    assert data_loading._in_child("print('{\"seconds\": 1}')", {}) == json.loads('{"seconds": 1}')
