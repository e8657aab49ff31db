"""The next event of a user's new sequences: from a file, as CSV, or row by row."""

import csv
import datetime
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from aaren.engine.experiment import Json
from aaren.errors import DataError
from aaren.events.batches import EventBatches
from aaren.events.config import EventsConfig
from aaren.events.experiment import PREDICTION_WORDS, events_of, read_own
from aaren.events.forecaster import EventForecaster, stack_events
from aaren.events.sequences import EventSequences
from aaren.files.atomic import write_text
from aaren.stream.rows import RowPath, field, number

QUANTILES = (0.05, 0.5, 0.95)
HEADER = (
    "sequence",
    "last_time",
    "next_time_mean",
    *(f"next_time_q{round(100 * level):02}" for level in QUANTILES),
    "mark",
    "mark_probability",
)


def predict_file(
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


TIMES = ("mean", *(f"q{round(100 * level):02}" for level in QUANTILES))  # of the next event, in an answer


class EventRows(RowPath):
    """`{"time": 3.5, "mark": "buy"}` in; the next one's time (mean, quantiles) and likeliest mark out."""

    time = "time"

    def __init__(self, model: nn.Module, preprocessing: Mapping[str, Json]) -> None:
        assert isinstance(model, EventForecaster)
        super().__init__(model)
        known = tuple(str(name) for name in cast("Sequence[str]", preprocessing["mark_names"]))
        self.names = known or tuple(str(kind) for kind in range(model.num_marks))
        self._places = {name: place for place, name in enumerate(self.names)}

    def example(self, time: str) -> dict[str, Any]:
        return {time: 0.0} if len(self.names) == 1 else {time: 0.0, "mark": self.names[0]}

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        when = number(row, time)
        if len(self.names) == 1:
            return when, {"mark": 0}
        mark = str(field(row, "mark"))
        place = self._places.get(mark)
        if place is None:
            raise DataError(f"unknown mark {mark!r}; the run knows {', '.join(self.names[:12])}.")
        return when, {"mark": place}

    def answers(
        self, found: Sequence[Any], rows: Sequence[Mapping[str, Any]], time: str
    ) -> list[dict[str, Any]]:
        coming = stack_events(found)
        # A probability for each level and stream: all of them are bisected at once.
        levels = torch.tensor(QUANTILES, dtype=torch.float64).unsqueeze(-1).expand(-1, len(found))
        gaps = torch.cat([coming.mean().unsqueeze(0), coming.quantile(levels)]).T.tolist()
        chosen = coming.mark_probabilities.max(-1)
        marks = zip(chosen.indices.tolist(), chosen.values.tolist(), strict=True)
        answers = []
        for row, gap, (mark, probability) in zip(rows, gaps, marks, strict=True):
            when = number(row, time)
            times = {name: when + one for name, one in zip(TIMES, gap, strict=True)}
            answers.append({"next_time": times, "mark": self.names[mark], "probability": probability})
        return answers

    def choice(self, answer: Mapping[str, Any]) -> tuple[str, float]:
        return answer["mark"], answer["probability"]
