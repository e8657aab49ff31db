"""The true likelihood of generated event sequences, over the very terms that a model is judged by."""

from dataclasses import replace

import numpy as np

from aaren.data.events.loading import PROCESSES, true_process
from aaren.data.events.sequences import EventSequences, offsets_from_lengths
from aaren.errors import DataError
from aaren.models.event_likelihood import Censoring


def has_truth(name: str) -> bool:
    """Tell whether the process behind a set is known."""
    return name in PROCESSES


def true_log_likelihood(name: str, events: EventSequences, censoring: Censoring) -> float:
    """Return the log-likelihood, given each first event, that the process itself gives to its events.

    By the rule "none" with the quiet time at the end, by "protocol" with the last event censored.
    """
    if events.observed_from is None:
        raise DataError(f"{events.name}: the true likelihood needs the start of observation.")
    process = true_process(name)
    if censoring == "none":
        final = 0.0 if events.final_gaps is None else float(process.log_survival(events).sum())
        return true_log_density(name, events) + final
    is_term = ~events.is_first
    is_term[events.offsets[1:] - 1] = False
    censored = process.log_survival(_without_last(events))
    return float(process.log_density(events)[is_term].sum() + censored.sum())


def true_log_density(name: str, events: EventSequences) -> float:
    """Return the log-density of all events but the first ones, without the quiet time at the end."""
    return float(true_process(name).log_density(events)[~events.is_first].sum())


def _without_last(events: EventSequences) -> EventSequences:
    """Leave out each last event and let observation end where it was, so that it counts as censored."""
    if events.lengths.min() < 2:
        raise DataError(f"{events.name}: a sequence of one event has nothing but a first event.")
    last = events.offsets[1:] - 1
    keep = np.ones(events.num_events, dtype=bool)
    keep[last] = False
    return replace(
        events,
        times=events.times[keep],
        offsets=offsets_from_lengths(events.lengths - 1),
        marks=None if events.marks is None else events.marks[keep],
        observed_until=events.times[last],
    )
