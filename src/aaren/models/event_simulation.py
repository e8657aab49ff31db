"""Whole futures drawn from a state: branch it, draw an event, step, and so on. Knows any event forecaster.

The futures of one state are independent; their share with some property is its probability.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from aaren.errors import ConfigError
from aaren.models.event_distribution import Events
from aaren.models.event_state import EventState

if TYPE_CHECKING:
    from aaren.models.event_forecaster import EventForecaster


class Futures(NamedTuple):
    """Drawn events, (b, branches, t), padded on the right."""

    times: Tensor  # float64, since the event that the state ended with
    marks: Tensor  # int64
    mask: Tensor  # bool, True = an event
    is_cut: Tensor  # (b, branches) bool: max_events came before the horizon

    @property
    def counts(self) -> Tensor:
        """Return how many events each future has, (b, branches)."""
        return self.mask.sum(-1)


@torch.no_grad()
def simulate(
    model: "EventForecaster",
    state: EventState,
    *,
    num_branches: int = 1,
    horizon: float | None = None,
    max_events: int = 1_000,
    generator: torch.Generator | None = None,
) -> Futures:
    """Draw futures of every stream of a state.

    Args:
        model: What steps.
        state: Where to begin, of b streams; it is branched and stays as it is.
        num_branches: Futures of each stream.
        horizon: How far to go, in time since the last event; None: max_events are drawn, however long it
            takes.
        max_events: Where to stop if the horizon does not come.
        generator: Of the randomness.
    """
    if num_branches < 1 or max_events < 1 or (horizon is not None and not horizon > 0.0):
        raise ConfigError(
            f"num_branches and max_events must be at least 1 and horizon positive or None; got "
            f"{num_branches}, {max_events} and {horizon}."
        )
    state = state.select(torch.arange(len(state.time)).repeat_interleave(num_branches))
    limit = float("inf") if horizon is None else horizon
    clock = torch.zeros(len(state.time), dtype=torch.float64, device=state.time.device)
    is_going = torch.ones_like(clock, dtype=torch.bool)
    times, marks, masks = [], [], []
    for _ in range(max_events):
        drawn = model.next_event(state).sample(1, generator=generator)
        event = Events(drawn.gaps[0], drawn.marks[0])
        clock = clock + event.gaps
        is_going = is_going & (clock <= limit)
        if not bool(is_going.any()):
            break
        times.append(clock.masked_fill(~is_going, 0.0))
        marks.append(event.marks.masked_fill(~is_going, 0))
        masks.append(is_going)
        # Futures that are over go on as they are: what becomes of their state is never looked at.
        _, state = model.encode_one(event, state)
    return Futures(
        times=_join(times, clock, num_branches),
        marks=_join(marks, torch.zeros_like(clock, dtype=torch.int64), num_branches),
        mask=_join(masks, is_going, num_branches),
        is_cut=(is_going & (horizon is not None)).view(-1, num_branches),
    )


def _join(columns: list[Tensor], like: Tensor, num_branches: int) -> Tensor:
    joined = torch.stack(columns, dim=-1) if columns else like.new_zeros(len(like), 0)
    return joined.view(len(like) // num_branches, num_branches, joined.shape[-1])
