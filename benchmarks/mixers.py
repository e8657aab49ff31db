"""Every mixer in the same small network: what it learns of a chain of events, and what it costs.

    python benchmarks/mixers.py [--record FILE]     # two minutes of one core

Two layers of width 64 with four heads, as `examples/order.py` trains them on digits. Chain: which of six
events comes next, where each depends on the two before it, in nats per event above the process. Times are of
one thread, in turns: an update is forward, backward and Adam on 64 sequences of 64 items; a step is
one item of one stream in eager torch, after 1,000 others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from aaren.nn import Conv, Encoder, TensorOnly
from harness import Benchmark, Call, Measured, OnStep, main, table, time_in_turns
from records import BenchRecord, Row, number, read_record

ORDER = "results/nn/order.json"
WIDTH, BATCH, RATE, KINDS, EVENTS = 64, 64, 3e-3, 6, 48
BOTH = {"conv": Conv(kernel=4), "position": "learned"}
MIXERS: dict[str, dict[str, Any]] = {  # named as in the record of examples/order.py
    "aaren": {},
    "aaren, decay": {"decay": "learned"},
    "aaren, convolution": {"conv": Conv(kernel=4)},
    "aaren, positions": {"position": "learned"},
    "aaren, both": BOTH,
    "gru": {"mixer": "gru"},
    "transformer, positions": {"mixer": "softmax", "position": "learned"},
    "transformer, both": BOTH | {"mixer": "softmax"},
    **{f"{peer}, both": BOTH | {"mixer": peer} for peer in ("gru", "mingru", "wkv", "linear", "retnet")},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MixerSettings:
    """How long to train and to measure."""

    updates: int = 250  # on the chain
    tokens: int = 1_000  # before a step is timed
    repeats: int = 15


QUICK = MixerSettings(updates=2, tokens=20, repeats=2)


def build(name: str, inputs: nn.Module, outputs: int) -> tuple[Encoder, nn.Module]:
    """Return the encoder with a mixer, and the network around it."""
    encoder = Encoder(
        width=WIDTH, num_heads=4, num_layers=2, ff_width=128, norm="pre", dropout=0.0, **MIXERS[name]
    )
    return encoder, nn.Sequential(inputs, TensorOnly(encoder), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, outputs))


def train(model: nn.Module, updates: int, batch: Callable[[], tuple[Tensor, Tensor]]) -> None:
    """Minimise the cross-entropy of (b, classes, ...) outputs."""
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, updates)
    for _ in range(updates):
        given, wanted = batch()
        optimiser.zero_grad()
        found = model(given).movedim(-1, 1)[:, :, -wanted.shape[1] :]
        nn.functional.cross_entropy(found, wanted).backward()  # type: ignore[no-untyped-call]  # torch's
        optimiser.step()
        schedule.step()


def chain(count: int, generator: np.random.Generator) -> tuple[Tensor, float]:
    """Return sequences of a chain of second order, and nats per event, from the third on, of the truth."""
    table = np.random.default_rng(0).dirichlet([0.2] * KINDS, size=(KINDS, KINDS))
    events = np.zeros((count, EVENTS), np.int64)
    events[:, :2] = generator.integers(0, KINDS, (count, 2))
    nats = 0.0
    for place in range(2, EVENTS):
        chances = table[events[:, place - 2], events[:, place - 1]]
        drawn = (generator.random((count, 1)) > chances.cumsum(-1)).sum(-1).clip(max=KINDS - 1)
        nats -= float(np.log(chances[np.arange(count), drawn] + 1e-300).mean())
        events[:, place] = drawn
    return torch.from_numpy(events), nats / (EVENTS - 2)


def excess(name: str, settings: MixerSettings) -> float:
    """Return nats per unseen event above the process."""
    generator = np.random.default_rng(1)
    _, model = build(name, nn.Embedding(KINDS, WIDTH), KINDS)

    def batch() -> tuple[Tensor, Tensor]:
        events, _ = chain(BATCH, generator)
        return events[:, :-1], events[:, 2:]

    train(model, settings.updates, batch)
    unseen, best = chain(512, np.random.default_rng(2))
    with torch.no_grad():
        found = model(unseen[:, :-1])[:, 1:].movedim(-1, 1)
        return float(nn.functional.cross_entropy(found, unseen[:, 2:])) - best


def costs(settings: MixerSettings) -> dict[str, Row]:
    """Return seconds of an update and a step, medians over turns among all mixers, and bytes of state."""
    calls: dict[str, Call] = {}
    sizes: dict[str, int] = {}
    pixels, labels = torch.randn(BATCH, 64, 1), torch.zeros(BATCH, 1, dtype=torch.int64)
    for name in MIXERS:
        _, model = build(name, nn.Linear(1, WIDTH), 10)
        calls[f"{name} update"] = partial(train, model, 2, lambda: (pixels, labels))
        stepped = build(name, nn.Linear(1, WIDTH), 10)[0].eval()
        token, state = torch.randn(1, WIDTH), stepped.init_state(1)
        with torch.no_grad():
            for _ in range(settings.tokens):
                _, state = stepped.step(token, state)
        sizes[name] = state.nbytes
        calls[f"{name} step"] = partial(steps, stepped, token, state)
    timings = time_in_turns(calls, seconds=1e9, most=settings.repeats)
    return {
        name: {
            "update_seconds": timings[f"{name} update"].median / 2,
            "step_seconds": timings[f"{name} step"].median / 20,
            "state_bytes": sizes[name],
        }
        for name in MIXERS
    }


@torch.no_grad()
def steps(encoder: Encoder, token: Tensor, state: Any) -> None:
    """Take twenty steps from one state."""
    for _ in range(20):
        encoder.step(token, state)


def measure(settings: MixerSettings, on_step: OnStep) -> Measured:
    """Train every mixer on the chain, then time them in turns."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    for place, name in enumerate(MIXERS):
        on_step(place, len(MIXERS) + 1, name)
        torch.manual_seed(0)
        rows.append({"mixer": name, "excess_nats": excess(name, settings)})
    on_step(len(MIXERS), len(MIXERS) + 1, "times")
    timed = costs(settings)
    about = {"updates": settings.updates, "tokens": settings.tokens}
    return {**about, "width": WIDTH, "layers": 2, "seeds": 1}, [
        {**row, **timed[str(row["mixer"])]} for row in rows
    ]


def digits() -> dict[str, str]:
    """Return how many unseen digits each network reads, by the committed record of examples/order.py."""
    found: dict[str, list[float]] = {}
    for row in read_record(Path(__file__).parents[1] / ORDER).measurements:
        found.setdefault(str(row["order"]), []).append(number(row, "accuracy"))
    return {name: f"{100.0 * np.mean(shares):.1f} %" for name, shares in found.items()}


def tables(record: BenchRecord) -> list[str]:
    """Return a row per mixer; times as a ratio to Aaren's."""
    ours, read = record.measurements[0], digits()
    shown = [
        (
            str(row["mixer"]),
            read.get(str(row["mixer"]), ""),
            f"{number(row, 'excess_nats'):+.2f}",
            f"{number(row, 'update_seconds') / number(ours, 'update_seconds'):.1f}",
            f"{number(row, 'step_seconds') / number(ours, 'step_seconds'):.1f}",
            f"{number(row, 'state_bytes'):,.0f}",
        )
        for row in record.measurements
    ]
    shown += [(name, share, "", "", "", "") for name, share in read.items() if not record.find(mixer=name)]
    columns = ("mixer", "digits", "chain, nats above", "update / Aaren's", "step / Aaren's", "bytes a stream")
    note = (
        f"Digits: mean of the seeds of {ORDER}; empty: not run yet. Chain: one seed. The Transformer's state "
        f"is that after {record.settings['tokens']:,} items; it grows."
    )
    return [table("Two layers of width 64", columns, shown, note=note)]


BENCHMARK = Benchmark(
    kind="mixers",
    command="python benchmarks/mixers.py",
    sources=("aaren/nn", "aaren/ops"),
    settings=MixerSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
