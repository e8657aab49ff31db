from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from aaren.bench import memory, scan
from aaren.bench.memory import MemoryExhaustedError
from aaren.bench.record import BenchRecord, read_record
from aaren.bench.scan import BENCHMARK, QUICK, ScanSettings, needed_bytes
from aaren.bench.scan_contenders import CONTENDERS, FORWARD, FORWARD_BACKWARD, PASSES, Shape, build
from aaren.cli.main import app
from aaren.errors import ConfigError
from aaren.ops.dispatch import BACKENDS

SMALL = Shape(2, 9, 2, 4)


@pytest.fixture(scope="module")
def quick_record() -> BenchRecord:
    return BENCHMARK.record(QUICK)


def test_every_backend_takes_part() -> None:
    assert set(BACKENDS) <= set(CONTENDERS)


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize(
    "name", [name for name in CONTENDERS if name not in ("triton", "copy", "sdpa", "gru", "lstm")]
)
def test_all_scans_compute_the_same(name: str, direction: str) -> None:
    truth = build("naive", SMALL, direction, torch.float64)()
    results = build(name, SMALL, direction)()
    assert len(results) == (1 if direction == FORWARD else 3)
    for result, exact in zip(results, truth, strict=True):
        torch.testing.assert_close(result, exact.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["kernel", "fused", "sdpa", "gru", "lstm"])
def test_first_entries_of_a_batch_are_the_same_problem(name: str) -> None:
    whole = build(name, SMALL, FORWARD_BACKWARD, torch.float64)()
    first = build(name, SMALL, FORWARD_BACKWARD, torch.float64, 1)()
    for all_entries, one in zip(whole, first, strict=True):
        torch.testing.assert_close(all_entries[:1], one)


@pytest.mark.parametrize("name", ["kernel", "fused", "sdpa", "gru"])
def test_repeated_calls_give_the_same(name: str) -> None:
    call = build(name, SMALL, FORWARD_BACKWARD)
    first = [result.clone() for result in call()]
    for before, again in zip(first, call(), strict=True):
        assert torch.equal(before, again)


def test_building_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    build("gru", SMALL, FORWARD)
    assert torch.equal(before, torch.random.get_rng_state())


def test_batch_is_two_from_8192_on() -> None:
    shapes = ScanSettings(lengths=(8192, 4096)).shapes()
    assert [(shape.batch, shape.length) for shape in shapes] == [(8, 4096), (2, 8192)]


def test_beyond_8192_only_linear_contenders_take_part() -> None:
    assert scan._names(Shape(2, 65536, 8, 64)) == ["copy", "kernel", "fused", "chunked"]


def test_exhausted_memory_becomes_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object, **__: object) -> int:
        raise MemoryExhaustedError("gone")

    monkeypatch.setattr(memory, "peak_extra_bytes", exhausted)
    row = scan._empty_row("naive", SMALL, FORWARD)
    scan._measure_memory(row, "naive", SMALL, FORWARD)
    assert row["skipped"] == "needs more memory than this machine has"


def test_needed_bytes_are_outputs_log_sums_and_gradients() -> None:
    shape = Shape(2, 8, 4, 16)
    outputs = torch.empty(*shape)
    log_sums = torch.empty(*shape[:3], dtype=torch.float64)
    grad_scores = torch.empty(*shape[:3])
    assert needed_bytes(shape) == 2 * outputs.nbytes + log_sums.nbytes + grad_scores.nbytes


@pytest.mark.slow
def test_quick_run_measures_every_cell(quick_record: BenchRecord) -> None:
    assert len(quick_record.measurements) == 2 * len(CONTENDERS)
    for row in quick_record.measurements:
        name = str(row["contender"])
        if name == "triton":
            assert row["skipped"] == "needs CUDA"
            continue
        assert row["skipped"] is None
        assert isinstance(row["median_seconds"], float)
        assert row["median_seconds"] > 0
        if name == "copy":
            assert row["error"] is None
            continue
        assert isinstance(row["error"], float)
        assert 0 < row["error"] < 1e-5, name
        if memory.can_measure() and not CONTENDERS[name].is_preallocated:
            assert isinstance(row["peak_extra_bytes"], int)
            assert row["peak_extra_bytes"] > 0
    scans = [
        row for row in quick_record.measurements if row["contender"] in BACKENDS and row["error"] is not None
    ]
    assert {row["truth"] for row in scans} == {"naive in float64"}


@pytest.mark.slow
def test_quick_run_can_be_written_shown_and_drawn(quick_record: BenchRecord, tmp_path: Path) -> None:
    path = tmp_path / "scan.json"
    quick_record.write(path)
    result = CliRunner().invoke(app, ["bench", "show", str(path), "--figure", str(tmp_path / "scan")])
    assert result.exit_code == 0, result.output
    assert "causal SDPA" in result.stdout
    assert "skipped: needs CUDA" in result.stdout
    assert "13 of 13 targets need the whole run: aaren bench scan" in result.stdout
    assert (tmp_path / "scan.png").stat().st_size > 10_000
    assert "<svg" in (tmp_path / "scan.svg").read_text()
    assert read_record(path) == quick_record


def test_contradicting_sizes_are_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "scan", "--quick", "--long"])
    assert isinstance(result.exception, ConfigError)
    assert "give only one of them" in str(result.exception)
