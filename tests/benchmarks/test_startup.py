import pytest

import startup
from harness import page_text, run


@pytest.mark.long
def test_measures_imports_and_calls_in_fresh_processes() -> None:
    record = run(startup.BENCHMARK, 1)
    assert [row["what"] for row in record.measurements] == list(startup.LABELS)
    names = str(record.measurements[-1]["names"]).split()
    assert {"safetensors", "typer"} <= set(names)
    assert "torch" not in names
    assert "new process" in page_text(startup.BENCHMARK, record)
