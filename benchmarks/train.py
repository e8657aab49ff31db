"""A whole training step of two layers beside the Transformer's, a GRU's, and its own matrix products.

    python benchmarks/train.py --record results/bench/train.json

Forward, a loss on every item, backward, Adam. The encoders differ in their mixer alone and have no dropout,
which would cost the Transformer its fast kernel. Every step sees as many items, in fewer and longer
sequences. The matrix products of a step (forward, and two for the gradients) are what no mixer can save.
Peak memory is that of one step in a fresh process, above what it holds before.
"""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from aaren.nn import Encoder
from harness import Benchmark, Call, Measured, OnStep, main, table, time_in_turns
from records import BenchRecord, Row, Setting, number

MIXERS = {"aaren": "aaren", "transformer": "softmax", "gru": "gru"}
PRODUCTS = "products"
LABELS = {
    "aaren": "Aaren",
    "transformer": "Transformer",
    "gru": "GRU",
    "lstm": "LSTM",
    PRODUCTS: "Aaren's matrix products alone",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSettings:
    """What to measure."""

    widths: tuple[int, ...] = (64, 256)
    lengths: tuple[int, ...] = (96, 1024, 8192)
    items: int = 8192  # in a step
    seconds: float = 20.0  # for one width and length
    has_memory: bool = True


def step_of(mixer: str, width: int, length: int, items: int) -> Call:
    """Return a training step on random sequences."""
    torch.manual_seed(0)
    encoder = Encoder(width=width, num_heads=4, num_layers=2, ff_width=4 * width, dropout=0.0, mixer=mixer)
    optimiser = torch.optim.Adam(encoder.parameters())
    inputs, targets = torch.randn(2, max(1, items // length), length, width)

    def step() -> None:
        optimiser.zero_grad()
        outputs, _ = encoder(inputs)
        torch.nn.functional.mse_loss(outputs, targets).backward()  # type: ignore[no-untyped-call]  # torch's
        optimiser.step()

    return step


def products_of(width: int, length: int, items: int) -> Call:
    """Return the matrix products of Aaren's step alone: outputs, and the gradients of inputs and weights."""
    encoder = Encoder(width=width, num_heads=4, num_layers=2, ff_width=4 * width, dropout=0.0)
    weights = [
        weight.detach()
        for name, weight in encoder.named_parameters()
        if weight.ndim == 2 and "q_proj" not in name  # one query, not one per item
    ]
    count = max(1, items // length) * length
    pairs = [(torch.randn(count, weight.shape[1]), torch.randn(count, weight.shape[0])) for weight in weights]

    def products() -> None:
        for weight, (inputs, gradients) in zip(weights, pairs, strict=True):
            _ = inputs @ weight.T, gradients @ weight, gradients.T @ inputs

    return products


def _peak(threads: int, mixer: str, width: int, length: int, items: int) -> int:
    """Run in a fresh process: return how far memory rises above its level before a step."""
    import resource

    torch.set_num_threads(threads)
    step_of(mixer, width, 16, 16)()  # loads what a first step loads
    step = step_of(mixer, width, length, items)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def peak_bytes(mixer: str, width: int, length: int, items: int) -> int | None:
    """Return the peak memory of a step, to about a megabyte; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_peak, torch.get_num_threads(), mixer, width, length, items).result()


def measure(settings: TrainSettings, on_step: OnStep) -> Measured:
    """Measure every mixer at every width and length, in turns."""
    rows: list[Row] = []
    cells = [(width, length) for width in settings.widths for length in settings.lengths]
    for done, (width, length) in enumerate(cells):
        on_step(done, len(cells), f"width {width}, {length:,} items")
        size = (width, length, settings.items)
        calls = {name: step_of(mixer, *size) for name, mixer in MIXERS.items()}
        timings = time_in_turns({**calls, PRODUCTS: products_of(*size)}, seconds=settings.seconds, most=50)
        for name, timing in timings.items():
            peak = peak_bytes(MIXERS[name], *size) if settings.has_memory and name in MIXERS else None
            about: Row = {"contender": name, "width": width, "length": length, "peak_extra_bytes": peak}
            rows.append({**about, "batch_size": max(1, settings.items // length), **timing.row()})
    about_run: dict[str, Setting] = {
        "model": "two layers, 4 heads, feed-forward 4x",
        "tokens_per_step": settings.items,
    }
    return {**about_run, "optimiser": "Adam", "dropout": 0.0, "dtype": "float32"}, rows


def tables(record: BenchRecord) -> list[str]:
    """Return times in units of Aaren's, by width and length."""
    rows = []
    for row in record.measurements:
        ours = record.find(contender="aaren", width=row.get("width"), length=row["length"])
        assert ours is not None
        seconds, peak = number(row, "median_seconds"), row["peak_extra_bytes"]
        size = f"width {row['width']}, " if "width" in row else ""
        rows.append(
            [
                f"{size}{row['length']:,} items, {LABELS[str(row['contender'])]}",
                f"{1e3 * seconds:,.1f} ms",
                f"{seconds / number(ours, 'median_seconds'):.2f}x",
                "" if peak is None else f"{number(row, 'peak_extra_bytes') / 1e6:,.0f} MB",
            ]
        )
    title = f"One training step of {record.settings['tokens_per_step']:,} items: {record.settings['model']}"
    return [table(title, ["", "median", "/ Aaren", "peak memory"], rows)]


BENCHMARK = Benchmark(
    kind="train",
    command="python benchmarks/train.py",
    sources=("aaren/ops", "aaren/nn"),
    settings=TrainSettings(),
    quick=TrainSettings(widths=(16,), lengths=(32,), items=64, seconds=0.1, has_memory=False),
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
