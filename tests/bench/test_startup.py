from pathlib import Path

import pytest

from aaren.bench import startup
from aaren.bench.publish import page_text, read_generated
from aaren.bench.record import read_record, silent


@pytest.mark.slow
def test_measures_imports_and_calls_in_fresh_processes(monkeypatch):
    monkeypatch.setattr(startup, "REPEATS", 1)
    record = startup.measure(command="aaren bench startup", on_step=silent)
    first, later = (record.find(what=what)["median_seconds"] for what in ("first call", "later call"))
    assert later < first  # compiled once, then loaded
    (sheet,) = startup.sheets(record)
    assert [row[1] for row in sheet.rows] == ["under 0.3 s", "under 20 s", "under 0.5 s"]
    assert "fresh installation" in page_text(record)


def test_page_shows_the_committed_record():
    root = Path(__file__).parents[2]
    record = read_record(root / "results" / "bench" / "startup.json", kind="startup")
    shown = read_generated(root / "docs" / "benchmarks.md", "startup")
    assert shown == page_text(record), "aaren bench show results/bench/startup.json --page docs/benchmarks.md"
