import pytest

import startup
from aaren.bench.publish import page_text


@pytest.mark.slow
def test_measures_imports_and_calls_in_fresh_processes():
    record = startup.measure(1)
    assert [(row["what"], row["repeats"]) for row in record.measurements] == [
        ("import", 1),
        ("first call", 1),
        ("later call", 1),
    ]
    (table,) = startup.tables(record)
    assert [row[1] for row in table.rows] == ["under 0.3 s", "under 20 s", "under 0.5 s"]
    assert "fresh installation" in page_text(startup.BENCHMARK, record)
