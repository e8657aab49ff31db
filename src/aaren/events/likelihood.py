"""The likelihood of event sequences under any event forecaster, term by term, and where sequences end.

Every sequence is taken given its first event. Two rules for its end. "none": the last event has a density
like any other, and where the end of observation is known the quiet time up to it has its probability.
"protocol", as published: the last event counts as censored.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from aaren.errors import unknown_name
from aaren.events.batches import EventBatch, EventBatches
from aaren.events.distribution import Events, GapDistribution
from aaren.events.forecaster import EventForecaster, EventState
from aaren.events.sequences import EventSequences, Times
from aaren.shapes import Mask

Censoring: TypeAlias = Literal["protocol", "none"]
CENSORINGS: tuple[Censoring, ...] = ("protocol", "none")
MOST_LOGITS = 2**24  # of marks at once, 67 MB in float32; more are computed piece by piece
WALKED_SEQUENCES, WALKED_EVENTS = 32, 1_024  # at once, where whole sets are explained without gradients


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Targets:
    """The events that have a term, all but each sequence's first, end to end, and what is known before."""

    known: Tensor  # (n, c) the encoder's output before each
    gaps: Tensor  # (n,) float64
    marks: Tensor  # (n,)
    is_last: Tensor  # (n,) bool, of its sequence
    sequence: Tensor  # (n,) int64, row of the batch
    known_at_end: Tensor  # (b, c) the encoder's output after the last event of each sequence


def find_targets(
    model: EventForecaster, events: Events, *, mask: Mask | None = None, state: EventState | None = None
) -> Targets:
    """Encode whole sequences, padded on the right, and line up what is to be explained."""
    outputs, state = model.encode(events, state, mask=mask)
    real = torch.ones_like(events.gaps, dtype=torch.bool) if mask is None else mask
    is_target = real[:, 1:]
    is_last = is_target & ~torch.nn.functional.pad(real[:, 2:], (0, 1))
    return Targets(
        known=outputs[:, :-1][is_target],
        gaps=events.gaps[:, 1:][is_target].double(),
        marks=events.marks[:, 1:][is_target],
        is_last=is_last[is_target],
        sequence=is_target.nonzero()[:, 0],
        known_at_end=state.output,
    )


def log_likelihood(
    model: EventForecaster,
    events: Events,
    *,
    mask: Mask | None = None,
    state: EventState | None = None,
    final_gaps: Tensor | None = None,
    censoring: Censoring = "none",
) -> Tensor:
    """Return the log-likelihood of all sequences together, a scalar in float64.

    Args:
        model: What explains them.
        events: gaps and marks, (b, t), padded on the right.
        mask: (b, t) bool, True = real.
        state: What came before, or at least when observation began, which a clock's periods depend on.
        final_gaps: (b,) quiet time after each last event, where the end of observation is known.
        censoring: The rule for the end of a sequence; "protocol" ignores final_gaps.
    """
    targets = find_targets(model, events, mask=mask, state=state)
    total = time_terms(model.decode_gap(targets.known), targets, censoring).sum()
    if final_gaps is not None and censoring == "none":
        total = total + model.decode_gap(targets.known_at_end).log_survival(final_gaps).sum()
    if model.num_marks > 1:
        total = total + mark_terms(model, targets.known, targets.marks).sum(dtype=torch.float64)
    return total


def time_terms(distribution: GapDistribution, targets: Targets, censoring: Censoring) -> Tensor:
    """Return each target's term for its time, (n,), by one of the rules."""
    if censoring not in CENSORINGS:
        raise unknown_name("censoring", censoring, CENSORINGS)
    if censoring == "none":
        return distribution.log_density(targets.gaps)
    terms = torch.zeros_like(targets.gaps)
    is_dense, is_last = (~targets.is_last).nonzero()[:, 0], targets.is_last.nonzero()[:, 0]
    terms = terms.index_copy(0, is_dense, distribution[is_dense].log_density(targets.gaps[is_dense]))
    return terms.index_copy(0, is_last, distribution[is_last].log_survival_clamped(targets.gaps[is_last]))


def mark_terms(model: EventForecaster, known: Tensor, marks: Tensor) -> Tensor:
    """Return the log-probability of each mark, (n,); with many kinds, in pieces that are computed twice."""
    if len(marks) * model.num_marks <= MOST_LOGITS:
        return _mark_terms(model, known, marks)
    size = max(1, MOST_LOGITS // model.num_marks)
    pieces = zip(torch.split(known, size), torch.split(marks, size), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([_mark_terms(model, *piece) for piece in pieces])
    # Kept for the backward pass, the logits of 30,000 events of 8,000 kinds would take gigabytes.
    return torch.cat([checkpoint(_mark_terms, model, *piece, use_reentrant=False) for piece in pieces])


def _mark_terms(model: EventForecaster, known: Tensor, marks: Tensor) -> Tensor:
    logits = model.decode_marks(known)
    if logits is None:
        return torch.zeros(len(marks), dtype=torch.float64, device=known.device)
    return -torch.nn.functional.cross_entropy(logits, marks, reduction="none")


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Explained:
    """What every event of a set was worth, in its order; NaN at first events, which are given."""

    time: Times  # (events,) log-density of its time
    mark: Times  # (events,) log-probability of its kind, 0 where there is only one
    is_right: Times  # (events,) 1.0 where the most probable kind came, 0.0 where not
    state: EventState  # after the last event of each sequence


def clocked_state(model: EventForecaster, batch: EventBatch) -> EventState | None:
    """Return a state that knows when the sequences of a batch begin; None: the model does not ask."""
    if not getattr(model.config, "periods", ()):
        return None
    begin = (batch.times[:, 0] - batch.gaps[:, 0]).contiguous()
    return model.init_state(len(batch), device=begin.device)._replace(time=begin, start=begin.clone())


@torch.no_grad()
def explain(model: EventForecaster, events: EventSequences) -> Explained:
    """Explain every event by all before it in its sequence, however long; in parts, without gradients."""
    found = np.full((3, events.num_events), np.nan)
    states: list[EventState] = []
    order: list[int] = []
    grows = getattr(model.config, "mixer", "") == "softmax"  # caches of unequal batches cannot be joined
    size = len(events) if grows else WALKED_SEQUENCES
    for batch in EventBatches(events, batch_size=size, shuffle=False):
        state = clocked_state(model, batch) or model.init_state(len(batch))
        first = torch.from_numpy(events.offsets[batch.sequences.numpy()])
        for begin in range(0, batch.mask.shape[1], WALKED_EVENTS):
            part = slice(begin, begin + WALKED_EVENTS)
            mask = batch.mask[:, part]
            outputs, after = model.encode(
                Events(batch.gaps[:, part], batch.marks[:, part] - 1), state, mask=mask
            )
            known = torch.cat([state.output.unsqueeze(1).to(outputs), outputs[:, :-1]], dim=1)
            state = after
            is_target = mask.clone()
            is_target[:, : max(0, 1 - begin)] = False
            rows, columns = is_target.nonzero(as_tuple=True)
            places = (first[rows] + begin + columns).numpy()
            targets = known[rows, columns]
            marks = batch.marks[:, part][rows, columns] - 1
            found[0, places] = (
                model.decode_gap(targets).log_density(batch.gaps[:, part][rows, columns]).numpy()
            )
            found[1, places], found[2, places] = 0.0, 1.0
            if model.num_marks > 1:
                found[1:, places] = _judge_marks(model, targets, marks)
        states.append(state)
        order += batch.sequences.tolist()
    joined = states[0] if len(states) == 1 else pytree.tree_map(lambda *parts: torch.cat(parts), *states)
    state = joined.select(np.argsort(order).tolist())
    return Explained(time=found[0], mark=found[1], is_right=found[2], state=state)


def _judge_marks(model: EventForecaster, known: Tensor, marks: Tensor) -> Times:
    """Return the log-probability of each mark and whether it was the most probable one, (2, n)."""
    terms, right = [], []
    size = max(1, MOST_LOGITS // model.num_marks)
    for some, wanted in zip(torch.split(known, size), torch.split(marks, size), strict=True):
        logits = model.decode_marks(some)
        assert logits is not None
        terms.append(-torch.nn.functional.cross_entropy(logits, wanted, reduction="none").double())
        right.append((logits.argmax(-1) == wanted).double())
    return np.stack([torch.cat(terms).numpy(), torch.cat(right).numpy()])
