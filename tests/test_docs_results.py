"""Figures in README and documentation are those of the committed records."""

from collections.abc import Callable
from pathlib import Path

import pytest

import docs_tables
from aaren.files.marked import read_marked
from records import read_record

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("page", "name"), docs_tables.TABLES)
def test_a_table_is_not_stale(page: str, name: str) -> None:
    shown = read_marked(ROOT / page, *docs_tables.marks(name), option="docs_tables.py")
    made = docs_tables.TABLES[page, name]()
    assert shown == f"\n{made.strip()}\n\n", f"{page} is stale: run `python benchmarks/docs_tables.py`"


@pytest.mark.parametrize("make", docs_tables.SENTENCES, ids=lambda make: make.__name__)
def test_figures_within_a_paragraph_are_those_of_the_records(make: Callable[[], str]) -> None:
    page = (ROOT / docs_tables.SENTENCES[make]).read_text(encoding="utf-8")
    assert make() in " ".join(page.split())


@pytest.mark.parametrize("module", docs_tables.BENCHMARKS, ids=lambda module: module.BENCHMARK.kind)
def test_commands_of_records_exist(module) -> None:
    benchmark = module.BENCHMARK
    assert benchmark.command == f"python benchmarks/{Path(module.__file__).name}"
    path = ROOT / "results" / "bench" / f"{benchmark.kind}.json"
    if path.exists():
        record = read_record(path, kind=benchmark.kind)
        assert not record.is_busy, "times of a busy machine are not to be quoted"
        assert record.changed or record.command.startswith(benchmark.command)


def test_readme_quotes_no_stale_or_void_measurement_unmarked() -> None:
    shown = read_marked(ROOT / "README.md", *docs_tables.marks("numbers"), option="docs_tables.py")
    kinds = ("scan", "stream", "train", "forecaster")
    records = [read_record(ROOT / "results" / "bench" / f"{kind}.json", kind=kind) for kind in kinds]
    assert ("**Stale**" in shown) == any(record.changed for record in records)
