import pytest

import startup
from aaren.bench.publish import page_text


@pytest.mark.long
def test_measures_imports_and_calls_in_fresh_processes():
    record = startup.BENCHMARK.record(1)
    assert [row["what"] for row in record.measurements] == [*startup.LIMITS, "dependencies"]
    assert {"safetensors", "typer"} <= set(record.measurements[-1]["names"].split())
    assert "torch" not in record.measurements[-1]["names"].split()
    (table,) = startup.tables(record)
    limits = ["under 100 ms", "under 100 ms", "under 50.0 µs", "under 200 µs", "under 15.0 MB"]
    assert [row[1].text for row in table.rows] == limits
    assert "new process" in page_text(startup.BENCHMARK, record)
