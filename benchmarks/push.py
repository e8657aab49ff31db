"""One item of one stream by torch, the native engine and onnxruntime; the size of exports.

    python benchmarks/push.py --record results/bench/push.json     # two minutes

Folded encoders with random weights, one thread. No step can be faster than reading its weights once.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from aaren.errors import AarenError
from aaren.export import export_stream
from aaren.export.artifact import OnnxStream
from aaren.export.onnx import FILE
from aaren.nn import Encoder, EncoderState
from aaren.stream.session import Session
from harness import Benchmark, Call, Measured, OnStep, main, table, time_in_turns
from records import BenchRecord, Row, number

SIZES = {"4 layers of width 64": (64, 4), "one block of width 512": (512, 1)}
LABELS = {
    "read": "reading the weights once",
    "native": "push, native engine",
    "torch": "push, torch",
    "onnx": "step, onnxruntime",
}
ITEMS = 32  # of one sample


@dataclass(frozen=True, kw_only=True, slots=True)
class PushSettings:
    """What to measure."""

    seconds: float = 10.0  # for one size
    targets: tuple[str, ...] = ("c", "wasm", "onnx")


def push_all(session: Session[EncoderState], items: np.ndarray) -> None:
    """Take in all items."""
    for item in items:
        session.push(item)


def calls_of(encoder: Encoder, folder: Path) -> Iterator[tuple[str, Call]]:
    """Yield what can be timed here, by name."""
    width = encoder.config.width
    items = np.random.default_rng(0).normal(size=(ITEMS, width)).astype(np.float32)
    weights = np.concatenate([weight.detach().numpy().ravel() for weight in encoder.parameters()])
    yield "read", lambda: [np.dot(weights, weights) for _ in range(ITEMS)]
    for engine in ("native", "torch"):
        yield engine, partial(push_all, Session(encoder, engine=engine), items)
    try:
        export_stream(encoder, folder, to="onnx", example=torch.zeros(1, width))
        stream = OnnxStream(folder / FILE)
    except AarenError:
        return  # onnxruntime is not installed
    yield "onnx", lambda: [stream.step({"item": item[None]}) for item in items]


def export_bytes(encoder: Encoder, target: str, folder: Path) -> int | None:
    """Return the size of the files of an export; None where its tool is missing."""
    try:
        example = torch.zeros(1, encoder.config.width)
        export_stream(encoder, folder, to=target, example=example, weights_file=target == "c")
    except AarenError:
        return None
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(settings: PushSettings, on_step: OnStep) -> Measured:
    """Time every size on one thread and export it to every target."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    for done, (size, (width, layers)) in enumerate(SIZES.items()):
        on_step(done, len(SIZES), size)
        torch.manual_seed(0)
        encoder = Encoder(width=width, num_heads=4, num_layers=layers, ff_width=4 * width).eval().fold()
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            calls = dict(calls_of(encoder, Path(folder, "timed")))
            timings = time_in_turns(calls, seconds=settings.seconds, most=1000)
            rows += [
                {"what": "push", "size": size, "contender": name, **timing.row(parts=ITEMS)}
                for name, timing in timings.items()
            ]
            weights = 4 * sum(weight.numel() for weight in encoder.parameters())
            for target in settings.targets:
                count = export_bytes(encoder, target, Path(folder, target))
                about: Row = {"what": "export", "size": size, "contender": target, "weights_bytes": weights}
                rows.append({**about, "bytes": count})
    return {"threads": 1}, rows


def tables(record: BenchRecord) -> list[str]:
    """Return times of an item, and sizes of exports."""
    times, sizes = [], []
    for row in record.measurements:
        if row["what"] == "push":
            read = record.find(what="push", size=row["size"], contender="read")
            assert read is not None
            spent = number(row, "median_seconds")
            ratio = spent / number(read, "median_seconds")
            times.append(
                [f"{row['size']}, {LABELS[str(row['contender'])]}", f"{1e6 * spent:,.1f} \N{MICRO SIGN}s"]
            )
            times[-1].append(f"{ratio:.1f}x")
        elif row["bytes"] is not None:
            weights = number(row, "weights_bytes")
            kilobytes = [f"{size / 1e3:,.0f} kB" for size in (number(row, "bytes"), weights)]
            sizes.append([f"{row['size']}, {row['contender']}", *kilobytes])
    return [
        table("One item of one stream, one thread", ["", "median", "/ reading"], times),
        table("Size of an export", ["", "all files", "weights in float32"], sizes),
    ]


BENCHMARK = Benchmark(
    kind="push",
    command="python benchmarks/push.py",
    sources=("aaren/nn", "aaren/stream"),
    settings=PushSettings(),
    quick=PushSettings(seconds=0.2, targets=("c",)),
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
