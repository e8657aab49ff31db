"""The documentation shows the committed records: every table is made from JSON."""

from pathlib import Path

import pytest

import data_loading
import engine_overhead
import event_training
import policy
import precision
import startup
import token_cost
from aaren.bench import scan, stream_view, train
from aaren.bench.publish import page_text, read_generated
from aaren.bench.record import read_record

ROOT = Path(__file__).parents[2]
PAGES = [
    (scan, "benchmarks"),
    (stream_view, "resources"),
    (train, "resources"),
    (precision, "resources"),
    (startup, "benchmarks"),
    (token_cost, "token-cost"),
    (policy, "rl"),
    (event_training, "events"),
    (engine_overhead, "training"),
    (data_loading, "data"),
]


@pytest.mark.parametrize(("module", "page"), PAGES, ids=[module.BENCHMARK.kind for module, _ in PAGES])
def test_a_page_shows_the_committed_record(module, page):
    benchmark = module.BENCHMARK
    path = ROOT / "results" / "bench" / f"{benchmark.kind}.json"
    record = read_record(path, kind=benchmark.kind)
    shown = read_generated(ROOT / "docs" / f"{page}.md", benchmark.command)
    assert shown == page_text(benchmark, record), f"show {path.name} again with --page docs/{page}.md"


@pytest.mark.parametrize("module", [module for module, _ in PAGES], ids=lambda module: module.BENCHMARK.kind)
def test_commands_of_records_and_pages_exist(module):
    benchmark = module.BENCHMARK
    record = read_record(ROOT / "results" / "bench" / f"{benchmark.kind}.json")
    assert record.command.startswith(benchmark.command)
    program, *words = benchmark.command.split()
    if program == "python":
        assert ROOT / words[0] == Path(module.__file__)
    else:
        assert (program, words) == ("aaren", ["bench", benchmark.kind])
