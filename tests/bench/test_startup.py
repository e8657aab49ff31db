import pytest

from aaren.bench import startup
from aaren.bench.progress import silent
from aaren.bench.publish import page_text


@pytest.mark.slow
def test_measures_imports_and_calls_in_fresh_processes(monkeypatch):
    monkeypatch.setattr(startup, "REPEATS", 1)
    record = startup.measure(command="aaren bench startup", on_step=silent)
    first, later = (record.find(what=what)["median_seconds"] for what in ("first call", "later call"))
    assert later < first  # compiled once, then loaded
    (sheet,) = startup.sheets(record)
    assert [row[1] for row in sheet.rows] == ["under 0.3 s", "under 20 s", "under 0.5 s"]
    assert "fresh installation" in page_text(record)
