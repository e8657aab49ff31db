"""Every timed benchmark runs at its quick sizes, fills its tables, and shows its committed record."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import pool
import push
import scan
import stream
import train
from aaren.ops import scan_attention
from harness import page_text, run
from records import read_record

RECORDS = Path(__file__).parents[2] / "results" / "bench"


@pytest.mark.parametrize("module", [scan, train, stream, push, pytest.param(pool, marks=pytest.mark.long)])
def test_a_quick_run_fills_every_table(module: ModuleType) -> None:
    benchmark = module.BENCHMARK
    threads = torch.get_num_threads()
    try:
        record = run(benchmark, benchmark.quick)
    finally:
        torch.set_num_threads(threads)
    for text in benchmark.tables(record):
        assert text.count("\n| ") >= 3
    if (RECORDS / f"{benchmark.kind}.json").exists():
        assert page_text(benchmark, read_record(RECORDS / f"{benchmark.kind}.json"))


@pytest.mark.parametrize("direction", [scan.FORWARD, scan.BOTH])
def test_scans_of_the_benchmark_compute_the_same(direction: str) -> None:
    results = [scan.build(name, 2, 16, direction)() for name in ("fused", "chunked", "paper_scan")]
    first, *others = [result if isinstance(result, tuple) else (result,) for result in results]
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-4, atol=1e-5)


def test_the_papers_scan_is_attention_over_prefixes() -> None:
    scores, values = torch.randn(2, 33, 3), torch.randn(2, 33, 3, 4)
    torch.testing.assert_close(scan.paper_scan(scores, values), scan_attention(scores, values)[0])


def test_products_are_those_of_a_step() -> None:
    """Two layers: three projections of width x width, two of 4 width x width; no query."""
    call = train.products_of(8, 4, 16)
    with FlopCounterMode(display=False) as counter:
        call()
    assert counter.get_total_flops() == 2 * 3 * 2 * 16 * (3 * 8 * 8 + 2 * 32 * 8)


def test_the_state_of_a_transformer_grows_and_aarens_does_not() -> None:
    ours, theirs = (stream.Stream(name, 16) for name in (stream.FOLDED, stream.TRANSFORMER))
    sizes = []
    for _ in range(3):
        ours.turn()
        theirs.turn()
        sizes.append((ours.state.nbytes, theirs.state.nbytes))
    assert sizes[0][0] == sizes[2][0]
    assert sizes[0][1] < sizes[2][1]


def test_keys_are_drawn_evenly_or_by_zipfs_law() -> None:
    uniform, zipf = (pool.draw_keys(how, 1000, 5000) for how in ("uniform", "zipf"))
    assert zipf.count("key 0") > 20 * max(uniform.count("key 0"), 1)
    assert pool.draw_keys("zipf", 1000, 50) == pool.draw_keys("zipf", 1000, 50)
