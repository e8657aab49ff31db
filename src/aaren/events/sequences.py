"""EventSequences: irregular event sequences as flat arrays, their gaps and ends, and what makes them valid.

Times are float64 and increase within a sequence, or stay equal where the clock has a resolution; marks start
at 0 (in a batch at 1, see `aaren.events.batches`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aaren.datasets.numbers import (
    LARGEST,
    LARGEST_WHOLE,
    SMALLEST,
    Integers,
    offsets_from_lengths,
    reals,
    wholes,
)
from aaren.errors import DataError

MAX_MARKS = 1_000_000  # kinds; more are ids, and a model has weights for every kind

Times: TypeAlias = NDArray[np.float64]


class Fault(NamedTuple):
    """The first thing wrong with some events: which one of the flat array, and what it is."""

    event: int
    problem: str


@dataclass(frozen=True, kw_only=True, eq=False)
class EventSequences:
    """Sequence i is `times[offsets[i]:offsets[i + 1]]`, with marks at the same places.

    >>> events = EventSequences.from_lists([[0.5, 2.0], [1.0, 1.5, 4.0]], observed_from=0.0)
    >>> len(events), events.num_events, events.gaps.tolist()
    (2, 5, [0.5, 1.5, 1.0, 0.5, 2.5])
    """

    times: Times  # (events,)
    offsets: Integers  # (sequences + 1,)
    marks: Integers | None = None  # (events,) from 0; None: unmarked
    num_marks: int = 1  # how many kinds exist, seen here or not
    mark_names: tuple[str, ...] = ()  # what the kinds are called, when a file named them
    unit: str = "time units"  # of times and gaps, for people and records
    origin: str = ""  # the date that times are counted from, as text of ISO 8601; "": they are numbers
    resolution: float = 0.0  # of the clock, in that unit; above 0, events may come at equal times
    observed_from: Times | None = None  # (sequences,) start of observation; None: unknown, first gaps are 0
    observed_until: Times | None = None  # (sequences,) end of observation; None: unknown, no final interval
    sequence_names: tuple[str, ...] = ()  # what the sequences are called, when a file named them
    split: Integers | None = None  # (sequences,) 0 train, 1 validation, 2 test, as the source has it
    name: str = "events"

    def __post_init__(self) -> None:
        self._check_layout()
        fault = first_fault(
            self.times, self.offsets, self.marks, self.num_marks, has_ties=self.resolution > 0.0
        )
        if fault is not None:
            sequence = int(np.searchsorted(self.offsets, fault.event, side="right")) - 1
            place = fault.event - int(self.offsets[sequence])
            raise DataError(f"{self.name}: sequence {sequence}, event {place}: {fault.problem}")
        self._check_observation()

    @classmethod
    def from_lists(
        cls,
        times: Sequence[ArrayLike],
        marks: Sequence[ArrayLike] | None = None,
        *,
        num_marks: int | None = None,
        unit: str = "time units",
        observed_from: float | None = None,
        observed_until: float | None = None,
        name: str = "events",
    ) -> "EventSequences":
        """Build from one list of times (and of marks) per sequence, all observed over one interval."""
        arrays = [reals(item, name=f"{name}: times of sequence {i}") for i, item in enumerate(times)]
        flat_marks = None
        if marks is not None:
            kinds = [
                wholes(item, name=f"{name}: marks of sequence {i}", least=-LARGEST_WHOLE)
                for i, item in enumerate(marks)
            ]
            flat_marks = np.concatenate(kinds) if kinds else np.empty(0, dtype=np.int64)
        counted = 1 if flat_marks is None or not len(flat_marks) else max(1, int(flat_marks.max()) + 1)
        return cls(
            times=np.concatenate(arrays) if arrays else np.empty(0),
            offsets=offsets_from_lengths([len(item) for item in arrays]),
            marks=flat_marks,
            num_marks=counted if num_marks is None else num_marks,
            unit=unit,
            observed_from=None if observed_from is None else np.full(len(arrays), observed_from),
            observed_until=None if observed_until is None else np.full(len(arrays), observed_until),
            name=name,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_events(self) -> int:
        """Number of events in all sequences."""
        return len(self.times)

    @cached_property
    def lengths(self) -> Integers:
        """Events per sequence, (sequences,)."""
        return np.diff(self.offsets)

    def counts(self) -> dict[str, int]:
        """Count what is in the set, by the names that the catalogue has for it."""
        return {
            "sequences": len(self),
            "events": self.num_events,
            "marks": self.num_marks,
            "shortest": int(self.lengths.min()),
            "longest": int(self.lengths.max()),
        }

    @cached_property
    def is_first(self) -> NDArray[np.bool_]:
        """True at the first event of each sequence, (events,)."""
        first = np.zeros(self.num_events, dtype=bool)
        first[self.offsets[:-1]] = True
        return first

    @cached_property
    def gaps(self) -> Times:
        """Time since the event before, (events,); the first: since observation began, 0 if unknown."""
        gaps = np.diff(self.times, prepend=self.times[:1])
        first = self.times[self.offsets[:-1]]
        gaps[self.offsets[:-1]] = 0.0 if self.observed_from is None else first - self.observed_from
        return gaps

    @cached_property
    def final_gaps(self) -> Times | None:
        """Time from the last event to the end of observation, (sequences,); None where the end is unknown."""
        return None if self.observed_until is None else self.observed_until - self.times[self.offsets[1:] - 1]

    @property
    def mean_gap(self) -> float:
        """Mean of the gaps that are really known: the first ones only where observation has a known start."""
        known = self.gaps if self.observed_from is not None else self.gaps[~self.is_first]
        if not len(known):
            raise DataError(
                f"{self.name}: no gap is known, every sequence has one event. Give longer sequences."
            )
        return float(known.mean())

    def select(self, sequences: ArrayLike) -> "EventSequences":
        """Keep these sequences (indices or a mask), in the order given."""
        chosen = np.arange(len(self))[np.asarray(sequences)]
        lengths = self.lengths[chosen]
        offsets = offsets_from_lengths(lengths)
        events = np.repeat(self.offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return replace(
            self,
            times=self.times[events],
            offsets=offsets,
            marks=None if self.marks is None else self.marks[events],
            observed_from=None if self.observed_from is None else self.observed_from[chosen],
            observed_until=None if self.observed_until is None else self.observed_until[chosen],
            sequence_names=tuple(self.sequence_names[i] for i in chosen) if self.sequence_names else (),
            split=None if self.split is None else self.split[chosen],
        )

    def with_split(self, split: Integers) -> "EventSequences":
        """Give the sequences a split of their own: 0 train, 1 validation, 2 test."""
        return replace(self, split=split)

    def _check_layout(self) -> None:
        if self.times.ndim != 1 or self.times.dtype != np.float64:
            raise DataError(
                f"{self.name}: times must be flat float64; got {self.times.dtype} {self.times.shape}."
            )
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(self.times):
            raise DataError(
                f"{self.name}: offsets must run from 0 to the {len(self.times)} events, one entry more "
                f"than there are sequences (at least one); got {offsets.shape}."
            )
        if (np.diff(offsets) < 1).any():
            empty = int(np.flatnonzero(np.diff(offsets) < 1)[0])
            raise DataError(f"{self.name}: sequence {empty} has no events. Leave empty sequences out.")
        if self.marks is not None and self.marks.shape != self.times.shape:
            raise DataError(
                f"{self.name}: {len(self.times)} times but {self.marks.size} marks, {self.marks.shape}."
            )
        if not 1 <= self.num_marks <= MAX_MARKS:
            raise DataError(
                f"{self.name}: num_marks, the number of kinds of events, must be 1 to {MAX_MARKS:,}; got "
                f"{self.num_marks}. Are the marks ids of single events?"
            )
        if self.mark_names and len(set(self.mark_names)) != self.num_marks:
            raise DataError(
                f"{self.name}: {self.num_marks} kinds of events need as many different mark_names; got "
                f"{len(self.mark_names)}, {len(set(self.mark_names))} different ones."
            )
        for label in ("observed_from", "observed_until", "split"):
            array = getattr(self, label)
            if array is not None and array.shape != (len(self),):
                raise DataError(
                    f"{self.name}: {label} needs one entry per sequence, {len(self)}; got {array.shape}."
                )

    def _check_observation(self) -> None:
        for label, ends, sign in (
            ("observed_from", self.observed_from, 1),
            ("observed_until", self.observed_until, -1),
        ):
            if ends is None:
                continue
            for place in np.flatnonzero(~(np.abs(ends) <= LARGEST))[:1]:
                raise DataError(
                    f"{self.name}: {label} of sequence {place} is {ends[place]}; it must be a finite time "
                    f"that float32 can hold. Where it is not known, leave {label} out."
                )
            outer = self.times[self.offsets[:-1]] if sign > 0 else self.times[self.offsets[1:] - 1]
            outside = ~(sign * (outer - ends) >= 0)
            if outside.any():
                worst = int(np.flatnonzero(outside)[0])
                raise DataError(
                    f"{self.name}: sequence {worst} has an event at {outer[worst]:g}, "
                    f"outside its {label} = {ends[worst]:g}."
                )


def first_fault(
    times: Times, offsets: Integers, marks: Integers | None, num_marks: int, *, has_ties: bool = False
) -> Fault | None:
    """Find the first event that has no time, is not later than the one before, or has an unknown mark."""
    broken = np.flatnonzero(~(np.abs(times) <= LARGEST))
    if len(broken):
        problem = "give every event a finite time that float32 can hold."
        return Fault(int(broken[0]), f"the time is {times[broken[0]]}; {problem}")
    faults = []
    gaps = np.diff(times, prepend=-np.inf)
    gaps[offsets[:-1]] = 1.0  # before the first event of a sequence is no gap
    for event in np.flatnonzero((gaps > LARGEST) | ((gaps > 0) & (gaps < SMALLEST)))[:1].tolist():
        problem = f"the gap before it is {gaps[event]:.3g}, which float32 cannot hold. Choose another unit."
        faults.append(Fault(event, problem))
    for event in np.flatnonzero(gaps < 0 if has_ties else gaps <= 0)[:1].tolist():
        late, early = f"{times[event]:.12g}", f"{times[event - 1]:.12g}"
        if gaps[event] < 0:
            problem = f"time {late} follows {early}: a negative gap. Sort by time, or read with sort=True."
        else:
            problem = (
                f"time {late} occurs twice, and a gap of 0 has no density. "
                "Keep the first of equal times with drop_duplicates=True."
            )
        faults.append(Fault(event, problem))
    if marks is not None:
        for event in np.flatnonzero((marks < 0) | (marks >= num_marks))[:1].tolist():
            problem = f"mark {marks[event]} is outside 0..{num_marks - 1} (num_marks={num_marks})."
            faults.append(Fault(event, problem))
    return min(faults, default=None)
