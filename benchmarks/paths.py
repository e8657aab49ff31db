"""Count the functions and files that three paths pass through, with `sys.setprofile`.

    python benchmarks/paths.py --record results/bench/paths.json

Only calls of named functions of this package are counted, the second time, when everything is imported.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import aaren
from harness import Benchmark, Measured, OnStep, main, table
from records import BenchRecord, Row

PACKAGE = str(Path(aaren.__file__).parent)


def trace(call: Callable[[], object]) -> Row:
    """Count the calls, functions and files of the package that a call passes through."""
    calls: list[tuple[str, str, int]] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<") and code.co_filename.startswith(PACKAGE):
            calls.append((code.co_filename, code.co_qualname, code.co_firstlineno))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    functions = set(calls)
    return {"calls": len(calls), "functions": len(functions), "files": len({file for file, *_ in functions})}


def one_token() -> Row:
    """Step one token through an encoder of one folded layer."""
    import torch

    from aaren.nn import Encoder, EncoderConfig

    with torch.no_grad():
        encoder = Encoder(EncoderConfig(width=64, num_heads=4, num_layers=1)).eval().fold()
        token = torch.randn(1, 64)
        _, state = encoder.step(token, encoder.init_state(1))
        return trace(lambda: encoder.step(token, state))


def train() -> Row:
    """Train one forecasting run as the command line does."""
    from aaren.cli.main import main as command_line

    def call() -> None:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(SystemExit),
        ):
            command_line()

    with tempfile.TemporaryDirectory() as folder:
        before = sys.argv
        sys.argv = ["aaren", "train", "forecasting", "seasonal", "--profile", "smoke", "--out", folder]
        try:
            return trace(call)
        finally:
            sys.argv = before


def classifier() -> Row:
    """Fit a classifier and stream ten samples."""
    import numpy as np

    from aaren import AarenClassifier

    cases, labels = np.random.default_rng(0).normal(size=(24, 2, 30)), np.tile([0, 1], 12)

    def call() -> None:
        session = AarenClassifier().fit(cases, labels).stream()
        for sample in cases[0].T[:10]:
            session.push(sample)

    return trace(call)


PATHS = {
    "one token through a folded layer": one_token,
    "aaren train forecasting": train,
    "AarenClassifier fit and stream": classifier,
}


def measure(names: Sequence[str], on_step: OnStep) -> Measured:
    """Trace every path twice and keep the second."""
    rows: list[Row] = []
    for place, name in enumerate(names):
        on_step(place, len(names), name)
        PATHS[name]()
        rows.append({"path": name, **PATHS[name]()})
    return {}, rows


def tables(record: BenchRecord) -> list[str]:
    """Return the one table."""
    columns = ("path", "calls", "functions", "files")
    rows = [[str(row["path"]), *(f"{row[name]:,}" for name in columns[1:])] for row in record.measurements]
    return [table("What a reader follows", columns, rows)]


BENCHMARK = Benchmark(
    kind="paths",
    command="python benchmarks/paths.py",
    sources=("aaren",),
    settings=tuple(PATHS),
    quick=tuple(PATHS)[:1],
    measure=measure,
    tables=tables,
    is_timed=False,
)

if __name__ == "__main__":
    main(BENCHMARK)
