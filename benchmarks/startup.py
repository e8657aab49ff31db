"""What a start costs: importing the package, and the first call, which loads the CPU kernel.

    python benchmarks/startup.py [--record FILE]     # seconds

Everything happens in fresh interpreters, after one that leaves bytecode behind, as installing does.
"""

import os
import statistics
import subprocess
import sys

from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, OnStep, Row, number, silent
from aaren.bench.table import Ratio, Table, Target, doubt, format_seconds, judge, targets_table

COMMAND = "python benchmarks/startup.py"
REPEATS = 5
LIMITS = {"import": 0.1, "first call": 0.1}
LABELS = {
    "import": "`import aaren, aaren.nn` after `import torch`",
    "first call": "first forward and backward in a new process",
}

_IMPORT = """
import time, torch
start = time.perf_counter()
import aaren, aaren.nn
print(time.perf_counter() - start)
"""
_CALL = """
import time, torch
from aaren.ops import scan_attention
scores, values = torch.zeros(2, 8, 2, requires_grad=True), torch.zeros(2, 8, 2, 4, requires_grad=True)
start = time.perf_counter()
scan_attention(scores, values)[0].sum().backward()
print(time.perf_counter() - start)
"""


def measure(repeats: int, on_step: OnStep = silent) -> BenchRecord:
    """Start interpreters and take the median of what each reports."""
    rows: list[Row] = []
    for what, code in (("import", _IMPORT), ("first call", _CALL)):
        on_step(len(rows), len(LIMITS), what)
        _run(code)
        seconds = [_run(code) for _ in range(repeats)]
        rows.append({"what": what, "median_seconds": statistics.median(seconds), "repeats": repeats})
    return BenchRecord(kind="startup", command=COMMAND, settings={"repeats": repeats}, measurements=rows)


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what a start may cost."""
    return [_target(record, what, limit) for what, limit in LIMITS.items()]


def tables(record: BenchRecord) -> list[Table]:
    """Return the one table."""
    return [targets_table(targets(record), title="Start-up, in fresh processes")]


def _target(record: BenchRecord, what: str, limit: float) -> Target:
    row = record.find(what=what)
    seconds = None if row is None else Ratio(number(row, "median_seconds"), doubt(record))
    return judge(LABELS[what], f"under {limit:g} s", seconds, lambda found: found < limit, format_seconds)


def _run(code: str) -> float:
    command = [sys.executable, "-P", "-c", code]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.strip())


BENCHMARK = Benchmark(
    kind="startup",
    command=COMMAND,
    settings=REPEATS,
    quick=1,
    measure=measure,
    tables=tables,
    takes_threads=False,
)

if __name__ == "__main__":
    main(BENCHMARK)
