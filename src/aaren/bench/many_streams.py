"""How many tokens per second one step carries when many streams are stepped together.

An eager step costs dispatch, not arithmetic, so a batch of streams is nearly free until memory is the limit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from aaren.bench.record import Row
from aaren.bench.stream_contenders import AAREN, FOLDED, SEED, SMALL, build
from aaren.bench.timing import time_interleaved
from aaren.errors import ConfigError

_CONTENDERS = (FOLDED, AAREN)


@dataclass(frozen=True, kw_only=True, slots=True)
class ManyStreamsSettings:
    """What to measure."""

    streams: tuple[int, ...] = (1, 32, 1024)
    size: str = SMALL
    budget_seconds: float = 8.0

    def __post_init__(self) -> None:
        if not self.streams or min(self.streams) < 1:
            raise ConfigError(f"streams must be at least 1; got {list(self.streams)}.")


def measure_many_streams(settings: ManyStreamsSettings) -> list[Row]:
    """Time a step of each model with each number of streams, turn by turn."""
    cells = [(contender, streams) for contender in _CONTENDERS for streams in settings.streams]
    with torch.inference_mode():
        calls = {f"{name} {streams}": _steps_of(settings.size, name, streams) for name, streams in cells}
        timings = time_interleaved(calls, budget_seconds=settings.budget_seconds, max_repeats=2000)
    return [
        {
            "what": "many_streams",
            "size": settings.size,
            "contender": contender,
            "streams": streams,
            "step_median_seconds": timing.median / steps_per_turn(streams),
            "step_lower_quartile_seconds": timing.lower_quartile / steps_per_turn(streams),
            "step_upper_quartile_seconds": timing.upper_quartile / steps_per_turn(streams),
            "steps_per_turn": steps_per_turn(streams),
            "repeats": timing.repeats,
            "tokens_per_second": streams * steps_per_turn(streams) / timing.median,
        }
        for (contender, streams), timing in zip(cells, timings.values(), strict=True)
    ]


def steps_per_turn(streams: int) -> int:
    """Return how many steps follow each other: a single stream needs many, lest it begin with cold caches.

    >>> steps_per_turn(1), steps_per_turn(1024)
    (64, 4)
    """
    return max(4, 64 // streams)


def _steps_of(size: str, contender: str, streams: int) -> Callable[[], object]:
    """Return a call that takes in a turn's tokens and keeps the state for the next call."""
    encoder = build(size, contender).eval()
    generator = torch.Generator().manual_seed(SEED)
    items = torch.randn(streams, encoder.config.width, generator=generator)
    state = encoder.init_state(streams)

    def take_turn() -> object:
        nonlocal state
        for _ in range(steps_per_turn(streams)):
            outputs, state = encoder.step(items, state)
        return outputs

    return take_turn
