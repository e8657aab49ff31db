import pytest

import startup
from aaren.bench.publish import page_text


@pytest.mark.long
def test_measures_imports_and_calls_in_fresh_processes():
    record = startup.measure(1)
    assert [(row["what"], row["repeats"]) for row in record.measurements] == [
        ("import", 1),
        ("first call", 1),
    ]
    (table,) = startup.tables(record)
    assert [row[1].text for row in table.rows] == ["under 0.1 s", "under 0.1 s"]
    assert "new process" in page_text(startup.BENCHMARK, record)
