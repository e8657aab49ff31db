"""Count the Python calls and files of the four paths that a reader follows, with `sys.setprofile`.

    python benchmarks/paths.py --record results/bench/paths.json

1. one token through one folded Aaren layer of an encoder
2. `aaren train forecasting seasonal --profile smoke`
3. `aaren reproduce --profile smoke`, then `aaren report`: the scheduling process, not its workers
4. `AarenClassifier().fit(X, y)` and ten samples of `.stream()`

Only calls of functions in this package are counted; comprehensions and generator steps are not.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import aaren
from aaren.lab.measurements import BenchRecord, Row
from harness import Benchmark, Measured, OnStep, main, table

PACKAGE = str(Path(aaren.__file__).parent)


class Trace:
    """What was called: every call, every function once, every file once."""

    def __init__(self) -> None:
        self.calls = 0
        self.functions: set[tuple[str, str, int]] = set()

    @property
    def files(self) -> set[str]:
        """Return the files of the package in which a function was called."""
        return {file for file, _, _ in self.functions}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call of a named function of the package."""
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<") or not code.co_filename.startswith(PACKAGE):
            return
        self.calls += 1
        self.functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace a block."""
    trace = Trace()
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)


def one_token() -> Trace:
    """Step one token through an encoder of one folded layer."""
    import torch

    from aaren.nn import Encoder, EncoderConfig

    with torch.no_grad():
        encoder = Encoder(EncoderConfig(width=64, num_heads=4, num_layers=1)).eval().fold()
        state, token = encoder.init_state(1), torch.randn(1, 64)
        _, state = encoder.step(token, state)
        with traced() as trace:
            encoder.step(token, state)
    return trace


def train() -> Trace:
    """Train one forecasting run as the command line does."""
    with tempfile.TemporaryDirectory() as folder, traced() as trace:
        run("train", "forecasting", "seasonal", "--profile", "smoke", "--out", folder)
    return trace


def reproduce() -> Trace:
    """Run the smoke grid and draw its page."""
    with tempfile.TemporaryDirectory() as folder, traced() as trace:
        run("reproduce", "--profile", "smoke", "--out", folder)
        run("report", folder, "-o", f"{folder}/report")
    return trace


def classifier() -> Trace:
    """Fit a classifier and stream ten samples."""
    import numpy as np

    from aaren import AarenClassifier

    random = np.random.default_rng(0)
    cases, labels = random.normal(size=(24, 2, 30)), np.tile([0, 1], 12)
    with traced() as trace:
        fitted = AarenClassifier(epochs=1).fit(cases, labels)
        session = fitted.stream()
        for sample in cases[0].T[:10]:
            session.push(sample)
    return trace


def run(*arguments: str) -> None:
    """Call the command line in this process, silently."""
    from aaren.cli.main import main as command_line

    before = sys.argv
    sys.argv = ["aaren", *arguments]
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(SystemExit),
        ):
            command_line()
    finally:
        sys.argv = before


def measure(names: Sequence[str], on_step: OnStep) -> Measured:
    """Trace every path twice and count the second time, when everything is imported and compiled."""
    rows: list[Row] = []
    for place, name in enumerate(names):
        on_step(place, len(names), name)
        PATHS[name]()
        trace = PATHS[name]()
        rows.append(
            {"path": name, "calls": trace.calls, "functions": len(trace.functions), "files": len(trace.files)}
        )
    return {}, rows


def tables(record: BenchRecord) -> list[str]:
    """Return the one table."""
    rows = [[str(row["path"]), *(f"{row[name]:,}" for name in COUNTED)] for row in record.measurements]
    return [table("What a reader follows", ("path", *COUNTED), rows)]


PATHS = {
    "one token through a folded layer": one_token,
    "aaren train forecasting": train,
    "aaren reproduce, then report": reproduce,
    "AarenClassifier fit and stream": classifier,
}
COUNTED = ("calls", "functions", "files")
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
