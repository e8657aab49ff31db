"""What does not shrink with the work: importing the package, the first call, any call, and the size on disk.

    python benchmarks/startup.py --record results/bench/startup.json     # half a minute

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

from harness import Benchmark, Measured, OnStep, main, table
from records import BenchRecord, Row, number

LABELS = {
    "import": "`import aaren, aaren.nn` after `import torch`",
    "first call": "first forward and backward in a new process",
    "forward": "forward of (1, 16, 4, 16) with autograd",
    "backward": "its backward",
    "dependencies": "installed size of the dependencies beside torch's and NumPy",
}
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
CODE = {
    "import": """
import time, torch
start = time.perf_counter()
import aaren, aaren.nn
print(time.perf_counter() - start)
""",
    "first call": """
import time, torch
from aaren.ops import scan_attention
scores, values = torch.zeros(2, 8, 2, requires_grad=True), torch.zeros(2, 8, 2, 4, requires_grad=True)
start = time.perf_counter()
scan_attention(scores, values)[0].sum().backward()
print(time.perf_counter() - start)
""",
    "forward": _LATER_CALL.format(what="forward"),
    "backward": _LATER_CALL.format(what="backward"),
}


def seconds_of(code: str) -> float:
    """Return what a fresh interpreter prints."""
    command = [sys.executable, "-P", "-c", code]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.strip())


def needed_by(package: str) -> set[str]:
    """Return the packages that installing one brings, without extras, all the way down."""
    names: set[str] = set()
    waiting = [package]
    while waiting:
        for line in distribution(waiting.pop()).requires or []:
            requirement = Requirement(line)
            name = requirement.name.lower().replace("_", "-")
            is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if is_needed and name not in names:
                try:
                    distribution(name)
                except PackageNotFoundError:
                    continue  # a part of torch that this build of it does not have
                names.add(name)
                waiting.append(name)
    return names


def measure(repeats: int, on_step: OnStep) -> Measured:
    """Start interpreters and take the median of what each reports; add up files."""
    rows: list[Row] = []
    for what, code in CODE.items():
        on_step(len(rows), len(CODE), what)
        seconds_of(code)
        seconds = [seconds_of(code) for _ in range(repeats)]
        rows.append({"what": what, "median_seconds": statistics.median(seconds), "repeats": repeats})
    others = needed_by("aaren") - needed_by("torch") - {"torch", "numpy"}
    files = [Path(str(file.locate())) for name in others for file in distribution(name).files or []]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return {"repeats": repeats}, [
        *rows,
        {"what": "dependencies", "names": " ".join(sorted(others)), "bytes": size},
    ]


def tables(record: BenchRecord) -> list[str]:
    """Return the one table."""
    rows = []
    for row in record.measurements:
        is_size = row["what"] == "dependencies"
        measured = (
            f"{number(row, 'bytes') / 1e6:.1f} MB"
            if is_size
            else f"{1e3 * number(row, 'median_seconds'):.3g} ms"
        )
        rows.append([LABELS[str(row["what"])], measured])
    return [table("Start-up and overhead, in fresh processes", ["", ""], rows)]


BENCHMARK = Benchmark(
    kind="startup",
    command="python benchmarks/startup.py",
    sources=("aaren/__init__.py", "aaren/nn", "aaren/ops"),
    settings=5,
    quick=1,
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
