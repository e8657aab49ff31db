"""What a start costs: importing the package, compiling the CPU kernel once, loading it from disk ever after.

Everything happens in fresh interpreters; the kernel's cache is a temporary folder, so that the first call is
that of a fresh installation.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from aaren.bench.record import BenchRecord, OnStep, Row, number
from aaren.bench.table import Sheet, Target, format_seconds, targets_sheet

REPEATS = 5
LIMITS = {"import": 0.3, "first call": 20.0, "later call": 0.5}
LABELS = {
    "import": "`import aaren, aaren.nn` after `import torch`",
    "first call": "first forward and backward of a fresh installation",
    "later call": "the same in a new process, from the disk cache",
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


def measure(*, command: str, on_step: OnStep) -> BenchRecord:
    """Start interpreters and take the median of what each reports."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as cache:
        for what, code, repeats in (
            ("import", _IMPORT, REPEATS),
            ("first call", _CALL, 1),
            ("later call", _CALL, REPEATS),
        ):
            on_step(len(rows), len(LIMITS), what)
            seconds = [_run(code, Path(cache)) for _ in range(repeats)]
            rows.append({"what": what, "median_seconds": statistics.median(seconds), "repeats": repeats})
    return BenchRecord(kind="startup", command=command, settings={"repeats": REPEATS}, measurements=rows)


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what a start may cost."""
    found = []
    for what, limit in LIMITS.items():
        row = record.find(what=what)
        seconds = None if row is None else number(row, "median_seconds")
        found.append(
            Target(
                name=LABELS[what],
                wanted=f"under {limit:g} s",
                measured=None if seconds is None else format_seconds(seconds),
                is_met=None if seconds is None else seconds < limit,
            )
        )
    return found


def sheets(record: BenchRecord) -> list[Sheet]:
    """Return the one table."""
    return [targets_sheet(targets(record), title="Start-up, in fresh processes")]


def _run(code: str, cache: Path) -> float:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.strip())
