"""What one action of a policy costs, early and late in an episode, for every way of remembering.

    python benchmarks/policy.py [--record FILE] [--quick]     # about two minutes

The published size (width 512, 4 heads, 4 blocks) in Hopper's sizes, one episode: Aaren with its state
carried, carried with resets, and with the window of 20 steps (60 tokens) computed again at every step; the
Decision Transformer with the same window, and with a cache that keeps the whole episode. Times are taken turn
by turn, so that ratios within one run can be quoted. The environment is left out: it costs all of them alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from aaren.bench import figure
from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, Setting, number
from aaren.bench.target import (
    Ratio,
    Target,
    at_least,
    format_quartiles,
    judge,
    targets_table,
    time_ratio,
    within,
)
from aaren.bench.timing import time_interleaved
from aaren.rl.model import DecisionModel, DecisionModelConfig, PolicyState
from aaren.rl.session import PolicySession
from aaren.table import Table, format_bytes, format_ratio, format_seconds, text_table

COMMAND = "python benchmarks/policy.py"
STATE_SIZE, ACTION_SIZE = 11, 3  # Hopper's
EARLY, LATE = 10, 1000
MEMORY_LIMIT = 20_000  # bytes per running episode
ACTIONS = 8  # in one timed call, one after the other, as a running policy finds its weights: just used
CARRIED = "Aaren, state carried"
CONTENDERS = {  # name: mixer, context
    CARRIED: ("aaren", "carried"),
    "Aaren, reset every 20": ("aaren", "reset"),
    "Aaren, window of 20": ("aaren", "window"),
    "Transformer, window of 20": ("softmax", "window"),
    "Transformer, cache of all": ("softmax", "carried"),
}
WINDOWS = ("Aaren, window of 20", "Transformer, window of 20")


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySettings:
    """What to measure."""

    width: int = 512
    num_heads: int = 4
    num_layers: int = 4
    steps: tuple[int, ...] = (EARLY, LATE)
    budget_seconds: float = 50.0  # for all contenders at one step


QUICK = PolicySettings(width=32, num_layers=2, steps=(EARLY, 60), budget_seconds=0.5)


def measure(settings: PolicySettings, on_step: OnStep) -> Measured:
    """Run the whole benchmark."""
    models = {mixer: _build(settings, mixer).fold() for mixer in ("aaren", "softmax")}
    rows: list[Row] = []
    states: dict[tuple[str, int], PolicyState] = {}
    sessions: dict[tuple[str, int], PolicySession] = {}
    for place, (name, (mixer, context)) in enumerate(CONTENDERS.items()):
        on_step(place, len(CONTENDERS) + 1, f"getting ready: {name}")
        for step in settings.steps:
            session = PolicySession(models[mixer], target_return=3600.0, context=context)
            states[name, step] = _go_to(session, step)
            sessions[name, step] = session
    on_step(len(CONTENDERS), len(CONTENDERS) + 1, "one action, turn by turn")

    def rewind(_round: int) -> None:
        for key, session in sessions.items():
            session.state = states[key].clone()

    sizes = {key: session.state.nbytes for key, session in sessions.items()}
    # From the last to the first, so that the state carried follows a turn of the same weights at both steps,
    # not one of 50 MB of cache that drove them out of the processor's memory.
    calls = {f"{name}|{step}": _prepare(sessions[name, step]) for name, step in reversed(sessions)}
    rewind(0)
    timings = time_interleaved(
        calls, budget_seconds=settings.budget_seconds * len(settings.steps), max_repeats=400, on_round=rewind
    )
    for name, step in sessions:
        timing = timings[f"{name}|{step}"]
        fields = {**timing.fields(parts=ACTIONS), "repeats": timing.repeats}
        rows.append({"contender": name, "step": step, **fields, "state_bytes": sizes[name, step]})
    about: dict[str, Setting] = {
        "width": settings.width,
        "num_heads": settings.num_heads,
        "num_layers": settings.num_layers,
        "state_size": STATE_SIZE,
        "action_size": ACTION_SIZE,
        "context_steps": models["aaren"].config.context_steps,
        "steps": list(settings.steps),
        "actions_per_call": ACTIONS,
        "dtype": "float32",
    }
    return about, rows


def tables(record: BenchRecord) -> list[Table]:
    """Return one table per step, then the targets."""
    found = []
    for step in sorted({int(number(row, "step")) for row in record.measurements}):
        rows = [row for row in record.measurements if row["step"] == step]
        found.append(
            text_table(
                title=f"One action, from action {step:,} of an episode on: {_size(record)}",
                columns=("", "time", "quartiles", "/ carried", "memory of the episode", "runs"),
                rows=[_cells(record, row) for row in rows],
                bold_rows=[CARRIED],
            )
        )
    return [*found, targets_table(targets(record), whole_run=COMMAND)]


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what this benchmark should reach."""
    late = record.find(contender=CARRIED, step=LATE)
    return [
        *(
            at_least(f"one action, {name} / state carried", _ratio(record, name, LATE, CARRIED, LATE), 2.5)
            for name in WINDOWS
        ),
        within(
            f"state carried, action {LATE:,} / action {EARLY}",
            _ratio(record, CARRIED, LATE, CARRIED, EARLY),
            0.9,
            1.1,
        ),
        judge(
            "state carried, memory per running episode",
            f"under {format_bytes(MEMORY_LIMIT)}",
            None if late is None else number(late, "state_bytes"),
            lambda found: found < MEMORY_LIMIT,
            format_bytes,
        ),
    ]


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw time per action against the step of the episode."""
    styles = {"carried": "-", "reset": ":", "window": "--"}
    colours = {"aaren": figure.VERMILION, "softmax": figure.BLUE}
    lines = []
    for name, (mixer, context) in CONTENDERS.items():
        rows = [row for row in record.measurements if row["contender"] == name]
        points = [(number(row, "step"), 1e3 * number(row, "median_seconds")) for row in rows]
        lines.append(figure.Line(name, points, colours[mixer], styles[context], is_stressed=name == CARRIED))
    panel = figure.Panel("Time of one action", "step of the episode", "milliseconds", lines)
    return figure.draw([panel], base, caption=_size(record))


def _build(settings: PolicySettings, mixer: str) -> DecisionModel:
    torch.manual_seed(0)
    config = DecisionModelConfig(
        state_size=STATE_SIZE,
        action_size=ACTION_SIZE,
        width=settings.width,
        num_heads=settings.num_heads,
        num_layers=settings.num_layers,
        mixer=mixer,
    )
    return DecisionModel(config).eval()


def _go_to(session: PolicySession, step: int) -> PolicyState:
    """Bring a session to where it waits for the observation of a step, counted from 1."""
    rng = np.random.default_rng(0)
    before = step - 1
    session.replay(
        rng.standard_normal((before, STATE_SIZE)),
        rng.uniform(-1.0, 1.0, (before, ACTION_SIZE)).astype(np.float32),
        np.ones(before),
    )
    return session.state


def _prepare(session: PolicySession) -> Callable[[], object]:
    observation, reward = np.zeros(STATE_SIZE), 1.0

    def act() -> None:
        for _ in range(ACTIONS):
            session.push(observation, reward)

    return act


def _ratio(record: BenchRecord, slow: str, slow_step: int, fast: str, fast_step: int) -> Ratio | None:
    rows = record.find(contender=slow, step=slow_step), record.find(contender=fast, step=fast_step)
    return time_ratio(record, *rows)


def _cells(record: BenchRecord, row: Row) -> tuple[str, ...]:
    name, step = str(row["contender"]), int(number(row, "step"))
    ratio = _ratio(record, name, step, CARRIED, step)
    return (
        name,
        format_seconds(number(row, "median_seconds")),
        format_quartiles(row),
        "" if ratio is None else format_ratio(ratio.value),
        format_bytes(number(row, "state_bytes")),
        f"{row['repeats']}",
    )


def _size(record: BenchRecord) -> str:
    sizes = record.settings
    return f"width {sizes['width']}, {sizes['num_heads']} heads, {sizes['num_layers']} blocks"


BENCHMARK = Benchmark(
    kind="policy",
    command=COMMAND,
    settings=PolicySettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
    draw=draw,
)

if __name__ == "__main__":
    main(BENCHMARK)
