"""A token's way through an encoder stays short."""

import paths
from harness import run


def test_a_token_passes_few_functions() -> None:
    record = run(paths.BENCHMARK, paths.BENCHMARK.quick)
    (row,) = record.measurements
    assert row["calls"] == row["functions"]  # none is called twice: nothing is checked twice
    assert int(str(row["calls"])) <= 10
    assert int(str(row["files"])) <= 5
    assert "one token" in paths.tables(record)[0]
