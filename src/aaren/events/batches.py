"""Padded batches of event sequences of similar length, in the convention of the encoder.

Marks in a batch are 1..K with 0 for padding, as the mark embedding wants them; unmarked sets have mark 1
everywhere. Padding is on the right. The batches of an epoch depend on the seed and its number alone, so a run
can resume.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from aaren.datasets.numbers import Integers
from aaren.errors import ConfigError, ShapeError
from aaren.events.sequences import EventSequences

POOL_BATCHES = 64  # sequences of this many batches are sorted together by length: little padding
LENGTH_BLUR = 0.05  # lengths are taken up to 5 % wrong in sorting, so that small sets too get fresh batches


@dataclass(frozen=True, kw_only=True, eq=False)
class EventBatch:
    """Some sequences, padded to the longest of them.

    >>> from aaren.events.sequences import EventSequences
    >>> events = EventSequences.from_lists([[1.0, 3.0], [0.5, 1.0, 2.0]])
    >>> batch = next(iter(EventBatches(events, batch_size=2, shuffle=False)))
    >>> batch.gaps.tolist(), batch.mask.tolist()
    ([[0.0, 2.0, 0.0], [0.0, 0.5, 1.0]], [[True, True, False], [True, True, True]])
    """

    times: Tensor  # (b, t) float64, 0 at padding
    gaps: Tensor  # (b, t) float64, time since the event before, 0 at padding
    marks: Tensor  # (b, t) int64, 1..num_marks, 0 at padding
    mask: Tensor  # (b, t) bool, True = real
    sequences: Tensor  # (b,) int64, which sequences of the set these are
    final_gaps: Tensor | None = None  # (b,) float64, quiet time after the last event, where the end is known

    def __post_init__(self) -> None:
        if self.mask.ndim != 2 or self.mask.dtype != torch.bool:
            raise ShapeError(f"mask must be (b, t) bool; got {tuple(self.mask.shape)} {self.mask.dtype}.")
        for name, dtype in (("times", torch.float64), ("gaps", torch.float64), ("marks", torch.int64)):
            tensor: Tensor = getattr(self, name)
            if tensor.shape != self.mask.shape or tensor.dtype != dtype:
                raise ShapeError(
                    f"{name} must be (b, t) {dtype} like the mask {tuple(self.mask.shape)}; "
                    f"got {tuple(tensor.shape)} {tensor.dtype}."
                )
        for name in ("sequences", "final_gaps"):
            per_sequence: Tensor | None = getattr(self, name)
            if per_sequence is not None and per_sequence.shape != self.mask.shape[:1]:
                raise ShapeError(
                    f"{name} must be (b,) = ({len(self.mask)},); got {tuple(per_sequence.shape)}."
                )
        if self.mask.numel() and (not self.mask[:, 0].all() or (self.mask[:, 1:] > self.mask[:, :-1]).any()):
            raise ShapeError("mask must be True up to each sequence's length and False after: right padding.")
        if not torch.equal(self.marks > 0, self.mask):
            raise ShapeError("marks must be 1..num_marks where mask is True and 0 at padding.")

    def __len__(self) -> int:
        return len(self.mask)

    def to(self, device: torch.device | str) -> "EventBatch":
        """Move every tensor to a device."""
        return EventBatch(
            times=self.times.to(device),
            gaps=self.gaps.to(device),
            marks=self.marks.to(device),
            mask=self.mask.to(device),
            sequences=self.sequences.to(device),
            final_gaps=None if self.final_gaps is None else self.final_gaps.to(device),
        )


class EventBatches:
    """The batches of a set: iterate for one pass, or `epoch(n)` for the n-th shuffled one.

    Args:
        events: The set.
        batch_size: Sequences per batch; the last one may be smaller.
        shuffle: True: a fresh order every epoch. False: all sequences by length, always the same.
        seed: Of the shuffling; epoch n is a function of the seed and n.
    """

    def __init__(
        self, events: EventSequences, *, batch_size: int = 16, shuffle: bool = True, seed: int = 0
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1; got {batch_size}.")
        self.events = events
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        marks = np.zeros(events.num_events, dtype=np.int64) if events.marks is None else events.marks
        self._marks = marks + 1

    def __len__(self) -> int:
        return -(-len(self.events) // self.batch_size)

    def __iter__(self) -> Iterator[EventBatch]:
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[EventBatch]:
        """Yield the batches of one pass over the set."""
        return (self.gather(chosen) for chosen in self.plan(number))

    def plan(self, number: int) -> list[Integers]:
        """Say which sequences go into which batch of an epoch."""
        lengths = self.events.lengths
        if not self.shuffle:
            order = np.argsort(lengths, kind="stable")
            return [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        rng = np.random.default_rng([self.seed, number])
        order = rng.permutation(len(lengths))
        pool = self.batch_size * POOL_BATCHES
        blurred = lengths * rng.uniform(1.0 - LENGTH_BLUR, 1.0 + LENGTH_BLUR, size=len(lengths))
        for begin in range(0, len(order), pool):
            part = order[begin : begin + pool]
            order[begin : begin + pool] = part[np.argsort(blurred[part], kind="stable")]
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def gather(self, chosen: Integers) -> EventBatch:
        """Pad these sequences into one batch."""
        events = self.events
        lengths = events.lengths[chosen]
        places = np.arange(int(lengths.max()))
        mask = places < lengths[:, None]
        flat = np.where(mask, events.offsets[chosen][:, None] + places, 0)
        return EventBatch(
            times=torch.from_numpy(events.times[flat] * mask),
            gaps=torch.from_numpy(events.gaps[flat] * mask),
            marks=torch.from_numpy(self._marks[flat] * mask),
            mask=torch.from_numpy(mask),
            sequences=torch.from_numpy(chosen.astype(np.int64)),
            final_gaps=None if events.final_gaps is None else torch.from_numpy(events.final_gaps[chosen]),
        )

    def padding_share(self, number: int = 0) -> float:
        """Give the share of an epoch's tokens that are padding."""
        tokens = sum(len(chosen) * int(self.events.lengths[chosen].max()) for chosen in self.plan(number))
        return 1.0 - self.events.num_events / tokens
