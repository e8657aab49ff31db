"""From single events in the order of a file to sequences, mending only what the reader was allowed to mend.

A fault is reported at the place in the file from which the event came. Knows no file format.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aaren.data.events.sequences import EventSequences, Integers, Times, first_fault, offsets_from_lengths
from aaren.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class Repairs:
    """What may be mended while reading; everything else that is wrong raises."""

    sort: bool = False  # put the events of a sequence in the order of time
    drop_duplicates: bool = False  # of events of one sequence at the same time, keep the first
    drop_single: bool = False  # leave out sequences of one event, which have no gap to learn from


class LooseEvents(NamedTuple):
    """Events in the order of a file; those of different sequences may be mixed."""

    sequence: Integers  # (events,) numbered from 0
    times: Times  # (events,)
    marks: Integers | None  # (events,)
    names: list[str]  # what the file calls the sequences

    def take(self, events: Integers) -> "LooseEvents":
        """Keep these events, in the order given."""
        marks = None if self.marks is None else self.marks[events]
        return LooseEvents(self.sequence[events], self.times[events], marks, self.names)


def group(
    loose: LooseEvents,
    repairs: Repairs,
    *,
    path: str,
    where: Callable[[int], str],
    num_marks: int | None = None,
    mark_names: tuple[str, ...] = (),
    unit: str = "time units",
) -> EventSequences:
    """Gather the events of each sequence, mend, and check; `where` turns an event of the file into words."""
    keys = (loose.times, loose.sequence) if repairs.sort else (loose.sequence,)
    source = np.lexsort(keys)  # a stable sort: without `sort`, events stay in the file's order
    source = source[_is_kept(loose.take(source), repairs)]
    if not len(source):
        raise DataError(f"{path}: every sequence has one event only, so there is no gap to learn from.")
    events = loose.take(source)
    lengths = np.unique(events.sequence, return_counts=True)[1]
    offsets = offsets_from_lengths(lengths)
    counted = 1 if events.marks is None else int(events.marks.max()) + 1
    kinds = num_marks or len(mark_names) or max(counted, 1)
    fault = first_fault(events.times, offsets, events.marks, kinds)
    if fault is not None:
        raise DataError(f"{where(int(source[fault.event]))}: {fault.problem}")
    for first in offsets[:-1][lengths == 1][:1]:
        raise DataError(
            f"{where(int(source[first]))}: sequence {events.names[events.sequence[first]]!r} has one event, "
            "so no gap to learn from. Leave such sequences out with drop_single=True."
        )
    return EventSequences(
        times=events.times,
        offsets=offsets,
        marks=events.marks,
        num_marks=kinds,
        mark_names=mark_names,
        unit=unit,
        sequence_names=tuple(events.names[number] for number in np.unique(events.sequence)),
        name=path,
    )


def _is_kept(events: LooseEvents, repairs: Repairs) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the events, grouped by sequence, that the repairs leave in place."""
    keep = np.ones(len(events.times), dtype=bool)
    if repairs.drop_duplicates:
        is_same = (events.times[1:] == events.times[:-1]) & (events.sequence[1:] == events.sequence[:-1])
        keep[1:] = ~is_same
    if repairs.drop_single:
        left = np.bincount(events.sequence[keep], minlength=len(events.names))
        keep &= left[events.sequence] > 1
    return keep
