"""What does not shrink with the work: importing the package, the first call, any call, and the size on disk.

    python benchmarks/startup.py [--record FILE]     # half a minute

Times are those of fresh interpreters, after one that leaves bytecode behind, as installing does. The first
call loads the CPU kernel. Later ones, on tensors so small that there is nothing to compute, cost checks,
autograd and memory. The size is that of all that `pip install aaren` brings beside torch and NumPy.
"""

import os
import statistics
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, number
from aaren.bench.target import Ratio, Target, doubt, judge, targets_table
from aaren.table import Table, format_bytes, format_seconds

REPEATS = 5
LIMITS = {"import": 0.1, "first call": 0.1, "forward": 5e-5, "backward": 2e-4}
LABELS = {
    "import": "`import aaren, aaren.nn` after `import torch`",
    "first call": "first forward and backward in a new process",
    "forward": "forward of (1, 16, 4, 16) with autograd",
    "backward": "its backward",
}

MAX_BYTES = 15e6

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
_LATER_CALL = """
import statistics, time, torch
from aaren.ops import scan_attention
torch.set_num_threads(1)
scores, values = torch.zeros(1, 16, 4, requires_grad=True), torch.zeros(1, 16, 4, 16, requires_grad=True)
outputs, _ = scan_attention(scores, values)
gradient, seconds = torch.ones_like(outputs), []
def forward():
    return scan_attention(scores, values)
def backward():
    return torch.autograd.grad(outputs, (scores, values), gradient, retain_graph=True)
for _ in range(5000):
    start = time.perf_counter()
    {what}()
    seconds.append(time.perf_counter() - start)
print(statistics.median(seconds))
"""
_CODE = {
    "import": _IMPORT,
    "first call": _CALL,
    "forward": _LATER_CALL.format(what="forward"),
    "backward": _LATER_CALL.format(what="backward"),
}


def measure(repeats: int, on_step: OnStep) -> Measured:
    """Start interpreters and take the median of what each reports."""
    rows: list[Row] = []
    for what, code in _CODE.items():
        on_step(len(rows), len(_CODE), what)
        _run(code)
        seconds = [_run(code) for _ in range(repeats)]
        rows.append({"what": what, "median_seconds": statistics.median(seconds), "repeats": repeats})
    others = needed_by("aaren") - needed_by("torch") - {"torch", "numpy"}
    rows.append({"what": "dependencies", "names": " ".join(sorted(others)), "bytes": installed_bytes(others)})
    return {"repeats": repeats}, rows


def needed_by(package: str) -> set[str]:
    """Return the packages that installing one brings, without extras, all the way down."""
    found: set[str] = set()
    waiting = [package]
    while waiting:
        for line in distribution(waiting.pop()).requires or []:
            requirement = Requirement(line)
            name = requirement.name.lower().replace("_", "-")
            is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if is_wanted and name not in found:
                try:
                    distribution(name)
                except PackageNotFoundError:
                    continue  # a part of torch that this build of it does not have
                found.add(name)
                waiting.append(name)
    return found


def installed_bytes(packages: set[str]) -> int:
    """Return the size of the files that installing these packages wrote."""
    files = [file.locate() for name in packages for file in distribution(name).files or []]
    return sum(Path(file).stat().st_size for file in files if Path(file).is_file())


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what a start may cost."""
    row = record.find(what="dependencies")
    size = judge(
        "installed size of the dependencies beside torch's and NumPy",
        f"under {format_bytes(MAX_BYTES)}",
        None if row is None else number(row, "bytes"),
        lambda found: found < MAX_BYTES,
        format_bytes,
    )
    return [*(_target(record, what, limit) for what, limit in LIMITS.items()), size]


def tables(record: BenchRecord) -> list[Table]:
    """Return the one table."""
    return [targets_table(targets(record), title="Start-up and overhead, in fresh processes")]


def _target(record: BenchRecord, what: str, limit: float) -> Target:
    row = record.find(what=what)
    seconds = None if row is None else Ratio(number(row, "median_seconds"), doubt(record))
    return judge(
        LABELS[what], f"under {format_seconds(limit)}", seconds, lambda found: found < limit, format_seconds
    )


def _run(code: str) -> float:
    command = [sys.executable, "-P", "-c", code]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.strip())


BENCHMARK = Benchmark(
    kind="startup",
    command="python benchmarks/startup.py",
    settings=REPEATS,
    quick=1,
    measure=measure,
    tables=tables,
    takes_threads=False,
)

if __name__ == "__main__":
    main(BENCHMARK)
