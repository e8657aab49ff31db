"""Compare the scan with that of an older commit, both in one process and in turn.

    python benchmarks/scan_against.py COMMIT [--record FILE] [--threads 2] [--rounds 8]      # two minutes

The package of the commit is put under another name, with its operators. What is timed are the operators, with
their allocations, on six shapes, and whole calls on tiny ones, whose cost is overhead.
"""

import argparse
import importlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import median
from time import perf_counter
from types import ModuleType

import torch
from torch import Tensor

import aaren.ops
from aaren.bench.record import BenchRecord, Row

COMMAND = "python benchmarks/scan_against.py"
OTHER = "aaren_before"
SHAPES = [
    (8, 1024, 8, 64),
    (2, 8192, 8, 64),
    (32, 128, 4, 32),
    (1, 65536, 2, 64),
    (8, 96, 8, 64),
    (4, 1024, 2, 40),
]
TINY = [(1, 1, 1, 1), (1, 16, 4, 16)]


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        packages = {"before": load_other(options.commit, Path(folder)), "after": aaren.ops}
        rows = [
            row
            for dtype in (torch.float32, torch.float64)
            for shape in SHAPES
            for row in compare_operators(packages, shape, dtype, options.rounds)
        ]
        torch.set_num_threads(1)
        rows += [row for shape in TINY for row in compare_calls(packages, shape)]
    settings = {"before": options.commit, "threads": options.threads, "rounds": options.rounds}
    record = BenchRecord(
        kind="scan_against", command=f"{COMMAND} {options.commit}", settings=settings, measurements=rows
    )
    if options.record:
        record.write(options.record)
    worst = max(float(row["ratio_of_medians"] or 0.0) for row in rows if row["what"] == "operator")
    print(f"operators: new / old at most {worst:.2f}")


def load_other(commit: str, folder: Path) -> ModuleType:
    """Unpack the package of a commit under another name, compile its kernels if it has any, and import it."""
    packed = subprocess.run(["git", "archive", commit], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    if (folder / "hatch_build.py").exists():
        subprocess.run([sys.executable, "hatch_build.py"], cwd=folder, check=True)
    package = (folder / "src/aaren").rename(folder / "src" / OTHER)
    for path in package.rglob("*.py"):
        path.write_text(re.sub(r"\baaren\b", OTHER, path.read_text()))
    sys.path.insert(0, str(package.parent))
    return importlib.import_module(f"{OTHER}.ops")


def compare_operators(
    packages: dict[str, ModuleType], shape: tuple[int, int, int, int], dtype: torch.dtype, rounds: int
) -> list[Row]:
    """Time forward and backward operators on the same tensors."""
    batch, length, heads, width = shape
    scores = torch.randn(batch, length, heads, dtype=dtype)
    values, grad = torch.randn(2, *shape, dtype=dtype)
    state = aaren.ops.ScanState.empty((batch, heads), width)
    zeros = torch.zeros_like(state.u), torch.zeros_like(state.w)
    inputs = (scores, values, None, None, None, *state)
    operators = {
        name: getattr(torch.ops, package.__name__.split(".")[0]) for name, package in packages.items()
    }
    engines = {  # kernels before Triton's had no name
        name: ("fused",) if len(package.prefix_attention.default._schema.arguments) > len(inputs) else ()
        for name, package in operators.items()
    }
    outputs, _, final_u, _, gates, forgets = operators["after"].prefix_attention(*inputs, *engines["after"])
    saved = (outputs, gates, forgets, final_u)
    calls: dict[str, dict[str, Callable[[], object]]] = {
        "forward": {
            name: partial(package.prefix_attention, *inputs, *engines[name])
            for name, package in operators.items()
        },
        "backward": {
            name: partial(package.prefix_attention_backward, grad, *zeros, *inputs, *saved, *engines[name])
            for name, package in operators.items()
        },
    }
    kind = {"shape": "x".join(map(str, shape)), "dtype": str(dtype).removeprefix("torch.")}
    return [
        show({"what": "operator", "direction": direction, **kind, **race(both, rounds)})
        for direction, both in calls.items()
    ]


def compare_calls(packages: dict[str, ModuleType], shape: tuple[int, int, int, int]) -> list[Row]:
    """Time whole calls through autograd where there is nothing to compute."""
    scores, values = torch.randn(shape[:3]).requires_grad_(), torch.randn(shape).requires_grad_()
    grad = torch.ones(shape)

    def both(package: ModuleType) -> tuple[Tensor, ...]:
        return torch.autograd.grad(package.scan_attention(scores, values)[0], (scores, values), grad)

    calls: dict[str, dict[str, Callable[[], object]]] = {
        "forward": {
            name: partial(package.scan_attention, scores, values) for name, package in packages.items()
        },
        "forward+backward": {name: partial(both, package) for name, package in packages.items()},
    }
    kind = {"shape": "x".join(map(str, shape)), "dtype": "float32"}
    return [
        show({"what": "call", "direction": direction, **kind, **race(each, 8, repeats=200)})
        for direction, each in calls.items()
    ]


def race(calls: dict[str, Callable[[], object]], rounds: int, *, repeats: int = 1) -> Row:
    """Call in turn, each after one call to warm up; return medians and ratios."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            tries = []
            for _ in range(2):
                start = perf_counter()
                for _ in range(repeats):
                    call()
                tries.append((perf_counter() - start) / repeats)
            seconds[name].append(min(tries))
    row: Row = {f"{name}_seconds": median(times) for name, times in seconds.items()}
    row["ratio_of_medians"] = median(seconds["after"]) / median(seconds["before"])
    row["ratio_of_best"] = min(seconds["after"]) / min(seconds["before"])
    return row


def show(row: Row) -> Row:
    """Print a row as it comes."""
    print(*(f"{x:.3g}" if isinstance(x, float) else x for x in row.values()), flush=True)
    return row


if __name__ == "__main__":
    main()
