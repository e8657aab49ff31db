"""Forecasts for a user's new events: a file of event sequences in, the next event of each one out, as CSV."""

import csv
import datetime
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import nn

from aaren.engine.experiment import Json
from aaren.errors import DataError
from aaren.events.batches import EventBatches
from aaren.events.config import EventsConfig
from aaren.events.experiment import PREDICTION_WORDS, events_of, read_own
from aaren.events.forecaster import EventForecaster
from aaren.events.sequences import EventSequences
from aaren.files.atomic import write_text

QUANTILES = (0.05, 0.5, 0.95)
HEADER = (
    "sequence",
    "last_time",
    "next_time_mean",
    *(f"next_time_q{round(100 * level):02}" for level in QUANTILES),
    "mark",
    "mark_probability",
)


def forecast_file(
    model: nn.Module,
    config: EventsConfig,
    preprocessing: Mapping[str, Json],
    *,
    source: Path,
    target: Path,
) -> None:
    """Write to `target`, for every sequence of `source`, when its next event comes and of which kind.

    Args:
        model: a trained event forecaster.
        config: of its run; its columns and repairs hold for the new file too.
        preprocessing: the kinds of events of its run.
        source: a file like the one that the run was trained on.
        target: a CSV file with one row per sequence; times are dates where `source` has dates, else numbers
            in its unit.
    """
    assert isinstance(model, EventForecaster)
    names = tuple(str(name) for name in cast("Sequence[str]", preprocessing["mark_names"]))
    num_marks = None if names else model.num_marks
    events = read_own(source, config.own, num_marks=num_marks, mark_names=names, words=PREDICTION_WORDS)
    if events.marks is None and model.num_marks > 1:
        raise DataError(
            f"{source}: no column {config.own.mark_column!r}, but the run was trained on {model.num_marks} "
            "kinds of events. Give every event its mark."
        )
    if events.num_marks > model.num_marks:
        raise DataError(
            f"{source}: marks go up to {events.num_marks - 1}, but the run knows 0..{model.num_marks - 1}. "
            "Leave those events out, or train again with them."
        )
    labels = events.sequence_names or [str(number) for number in range(len(events))]
    rows = _rows(model, events, names, labels)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(rows)
    write_text(target, text.getvalue())


def _rows(
    model: EventForecaster, events: EventSequences, names: tuple[str, ...], labels: Sequence[str]
) -> list[list[str]]:
    write = _writer(events.origin)
    rows: dict[int, list[str]] = {}
    for batch in EventBatches(events, batch_size=64, shuffle=False):
        _, state = model.encode(events_of(batch), mask=batch.mask)
        following = model.next_event(state)
        chosen = following.mark_probabilities.max(-1)
        gaps = torch.stack([following.mean(), *(following.quantile(level) for level in QUANTILES)], dim=-1)
        for place, sequence in enumerate(batch.sequences.tolist()):
            last = float(events.times[events.offsets[sequence + 1] - 1])
            mark = int(chosen.indices[place])
            rows[sequence] = [
                labels[sequence],
                write(last),
                *(write(last + gap) for gap in gaps[place].tolist()),
                names[mark] if names else str(mark),
                f"{float(chosen.values[place]):.6g}",
            ]
    return [rows[sequence] for sequence in sorted(rows)]


def _writer(origin: str) -> Callable[[float], str]:
    """Return how a time is written: as a number, or as a date if its origin is one.

    >>> _writer("2026-01-01T00:00:00")(90.5), _writer("")(90.5), _writer("2026-01-01")(1e15)
    ('2026-01-01T00:01:30.500000', '90.5', '')
    """
    if not origin:
        return lambda time: f"{time:.12g}"
    first = datetime.datetime.fromisoformat(origin)

    def write(time: float) -> str:
        try:
            return (first + datetime.timedelta(seconds=time)).isoformat()
        except (OverflowError, ValueError):  # beyond the year 9999, or not finite
            return ""

    return write
