"""Train the event model of `AarenEventForecaster`: what is held out, in which windows, until when.

Two parts are held out: one for early stopping, the other for the comparison with the Markov chain. Where
there are many sequences whole ones are held out, else the latest events of each.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from aaren.datasets.numbers import Integers, offsets_from_lengths
from aaren.engine.experiment import Experiment, Part
from aaren.engine.plan import Criterion, Moment, Plan, warm_up
from aaren.errors import DataError
from aaren.events.batches import EventBatch, EventBatches
from aaren.events.distribution import Events
from aaren.events.forecaster import EventForecaster
from aaren.events.likelihood import clocked_state, explain, log_likelihood
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.references import EventReference, EventReferenceConfig
from aaren.events.sequences import EventSequences, Times

MANY_SEQUENCES = 20  # from here on whole sequences are held out
LARGEST_SHARE = 0.2  # of all events; where one sequence has more, the latest events of each are held out
WINDOW_EVENTS = 256  # longer sequences are cut for training
CONTEXT_EVENTS = 256  # seen before what is held out of a sequence, and not judged
EVALUATE_EVERY = 50, 200  # updates, at least and at most
WARM_UP_UPDATES = 100
PAIRS_PER_CELL = (
    5  # with fewer the counts fit their own events too well, and the network learns nothing of kinds
)
CLIP_NORM = 1.0
WEIGHT_DECAY = 1e-2
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the correction that are tried


class HeldOut(NamedTuple):
    """Events that a model is judged by; those before them in a sequence are only read."""

    events: EventSequences
    is_judged: NDArray[np.bool_]  # (events,)


class Parts(NamedTuple):
    """The parts for training, for early stopping and for the comparison."""

    train: EventSequences
    stop: HeldOut
    judge: HeldOut


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Nats per held-out event (lower is better), and how often the most probable kind came."""

    total: float
    time: float
    kind: float
    accuracy: float


def divide(events: EventSequences, *, fraction: float, seed: int) -> Parts:
    """Hold out this fraction of the events, half of it to stop by and half to judge by.

    Args:
        events: all of them; sequences of one event have nothing to explain and are left out.
        fraction: above 0 and below 1.
        seed: of which sequences are held out.
    """
    events = events.select(events.lengths > 1) if (events.lengths > 1).any() else events
    gaps = events.num_events - len(events)
    if gaps < 10:
        raise DataError(
            f"{gaps} gaps between events are too few to learn from: give at least 10 events that have one "
            f"before them in their sequence."
        )
    if len(events) >= MANY_SEQUENCES and events.lengths.max() <= LARGEST_SHARE * events.num_events:
        order = np.random.default_rng(seed).permutation(len(events))
        count = max(2, round(fraction * len(events)))
        to_stop, to_judge, rest = (np.sort(some) for some in np.split(order, [count // 2, count]))
        return Parts(events.select(rest), _whole(events.select(to_stop)), _whole(events.select(to_judge)))
    first, second = (
        (events.lengths * (1.0 - share)).round().astype(int) for share in (fraction, fraction / 2)
    )
    first = np.clip(first, np.minimum(2, events.lengths), events.lengths)
    second = np.clip(second, first, events.lengths)
    train = _between(events, np.zeros_like(first), first)
    train = train.select(train.lengths > 1)
    return Parts(train, _latest(events, first, second), _latest(events, second, events.lengths))


def _whole(events: EventSequences) -> HeldOut:
    return HeldOut(events, ~events.is_first)


def _latest(events: EventSequences, begin: Integers, end: Integers) -> HeldOut:
    """Return the events from begin to end of each sequence, with some before them to be read."""
    has_some = np.flatnonzero(end > begin)
    if not len(has_some):
        raise DataError("the sequences are too short to hold anything out: give longer ones, or 20 of them.")
    events, begin, end = events.select(has_some), begin[has_some], end[has_some]
    context = np.maximum(0, begin - CONTEXT_EVENTS)
    found = _between(events, context, end)
    place = np.arange(found.num_events) - np.repeat(found.offsets[:-1], found.lengths)
    return HeldOut(found, place >= np.repeat(np.maximum(1, begin - context), found.lengths))


def _between(events: EventSequences, begin: Integers, end: Integers) -> EventSequences:
    """Cut out of every sequence the events from begin to end; nothing is known of the quiet time after."""
    lengths = end - begin
    offsets = offsets_from_lengths(lengths)
    chosen = np.repeat(events.offsets[:-1] + begin - offsets[:-1], lengths) + np.arange(offsets[-1])
    is_whole = end == events.lengths
    until = events.observed_until
    times = events.times[chosen]
    return replace(
        events,
        times=times,
        offsets=offsets,
        marks=None if events.marks is None else events.marks[chosen],
        observed_from=None,
        observed_until=None if until is None else np.where(is_whole, until, times[offsets[1:] - 1]),
        split=None,
    )


def windows(events: EventSequences, most: int = WINDOW_EVENTS) -> EventSequences:
    """Cut long sequences into windows that share one event each, so that every gap is in one of them."""
    pieces = np.maximum(1, np.ceil((events.lengths - 1) / (most - 1)).astype(int))
    whole = np.repeat(np.arange(len(events)), pieces)
    number = np.arange(len(whole)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    gaps = (events.lengths - 1)[whole]
    begin, end = (number * gaps // pieces[whole], (number + 1) * gaps // pieces[whole] + 1)
    return _between(events.select(whole), begin, end)


def fit_markov(events: EventSequences, *, time_scale: float = 1.0) -> EventReference:
    """Fit the baseline: a Markov chain of kinds, log-normal gaps by the latest kind.

    Args:
        events: what is trained on.
        time_scale: the unit of the fitted gaps, in that of the data.
    """
    marks = np.zeros(events.num_events, dtype=np.int64) if events.marks is None else events.marks
    known = np.flatnonzero(~events.is_first)
    found = EventReference(
        EventReferenceConfig(
            distribution="markov", num_marks=events.num_marks, resolution=events.resolution / time_scale
        )
    )
    gaps, now, last = (
        torch.from_numpy(some) for some in (events.gaps[known], marks[known], marks[known - 1])
    )
    found.fit(gaps / time_scale, now, last)
    return found


def judge(model: EventForecaster, held_out: HeldOut) -> Judged:
    """Explain what was held out."""
    return summarise(terms(model, held_out))


def terms(model: EventForecaster, held_out: HeldOut) -> Times:
    """Return log-density of the time, log-probability of the kind, and hits, (3, events judged)."""
    found = explain(model, held_out.events)
    return np.stack([found.time, found.mark, found.is_right])[:, held_out.is_judged]


def summarise(found: Times) -> Judged:
    """Return the means of `terms`."""
    time, kind, accuracy = (float(number) for number in found.mean(axis=1))
    return Judged(total=-time - kind, time=-time, kind=0.0 - kind, accuracy=accuracy)


class EventFit(Experiment[EventBatch]):
    """The training of one `EventModel`, from the Markov chain on, until held-out events stop improving."""

    def __init__(
        self,
        parts: Parts,
        config: EventModelConfig,
        *,
        batch_size: int,
        learning_rate: float,
        updates: int,
        patience: int,
        seed: int,
    ) -> None:
        self.parts, self.config, self.learning_rate = parts, config, learning_rate
        self.training = EventBatches(windows(parts.train), batch_size=batch_size, seed=seed)
        per_epoch = len(self.training)
        every = min(max(per_epoch, EVALUATE_EVERY[0]), EVALUATE_EVERY[1], updates)
        self.plan = Plan(
            updates_per_epoch=per_epoch,
            max_updates=updates,
            evaluate_every=every,
            selects=Criterion(metric="nll", ties=False),
            patience=patience,
            schedule=warm_up(WARM_UP_UPDATES),
            clip_norm=CLIP_NORM,
        )

    def build_model(self) -> nn.Module:
        """Build the model around the fitted chain."""
        model = EventModel(self.config)
        if model.base is not None:
            markov = fit_markov(self.parts.train, time_scale=self.config.time_scale)
            assert markov.tables is not None
            model.base.load_state_dict(markov.tables.state_dict())
            if self.parts.train.num_events < PAIRS_PER_CELL * self.config.num_marks**2:
                model.base.forget_chain()
        return model

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build AdamW; the baseline's own numbers are not trained."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return AdamW(trained, lr=self.learning_rate, weight_decay=WEIGHT_DECAY)

    def batches(self, epoch: int) -> Iterator[EventBatch]:
        """Walk through the windows, those of similar length together."""
        return self.training.epoch(epoch)

    def loss(self, model: nn.Module, batch: EventBatch) -> Tensor:
        """Return the mean negative log-likelihood of the events that have a term."""
        assert isinstance(model, EventForecaster)
        total = log_likelihood(
            model,
            Events(batch.gaps, batch.marks - 1),
            mask=batch.mask,
            state=clocked_state(model, batch),
            final_gaps=batch.final_gaps,
        )
        terms = max(1, int(batch.mask.sum()) - len(batch))  # the first event of a window has none
        return -total / float(terms)

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Judge by one of the held-out parts."""
        del moment
        assert isinstance(model, EventForecaster)
        return {"nll": judge(model, self.parts.stop if part == "validation" else self.parts.judge).total}


def shrink_correction(model: EventModel, held_out: HeldOut) -> tuple[float, float]:
    """Draw the heads towards the Markov chain as far as held-out events are then more likely.

    Gaps and kinds are drawn separately. From few events a network learns chance, too, and on some streams
    there is nothing to learn of one of the two.

    Returns:
        The shares of the correction that are left, of gaps and of kinds.
    """
    if model.base is None:
        return 1.0, 1.0
    trained = {key: value.clone() for key, value in model.state_dict().items()}
    found = []
    for share in SHARES:
        model.draw_to_base(gaps=share, kinds=share)
        found.append(terms(model, held_out)[:2].mean(axis=1))
        model.load_state_dict(trained)
    gaps, kinds = (SHARES[int(place)] for place in np.argmax(found, axis=0))  # of equal ones the largest
    model.draw_to_base(gaps=gaps, kinds=kinds)
    return gaps, kinds


def is_still_improving(curve: Sequence[float], *, last: int = 3) -> bool:
    """Tell whether the best evaluation is among the last ones.

    >>> is_still_improving([1.0, 0.8, 0.7, 0.6]), is_still_improving([1.0, 0.5, 0.7, 0.6, 0.8, 0.9])
    (True, False)
    """
    return int(np.argmin(curve)) >= len(curve) - last


def compare(ours: Times, theirs: Times, *, blocks: int = 20) -> tuple[float, float]:
    """Return by how many nats per event ours is better, and the standard error of that.

    Neighbouring events are not independent: the error is that of the means of blocks.

    Args:
        ours: (3, events) of `terms`.
        theirs: the same events.
        blocks: so many, of neighbours.
    """
    gain = (ours[:2] - theirs[:2]).sum(axis=0)
    means = [float(block.mean()) for block in np.array_split(gain, min(blocks, len(gain)))]
    error = float(np.std(means, ddof=1) / math.sqrt(len(means))) if len(means) > 1 else math.inf
    return float(gain.mean()), error
