"""Where events come from: a registered set or the user's own file; and which published numbers they match."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from aaren.data.events import files as event_files
from aaren.data.events.loading import load
from aaren.data.events.sequences import EventSequences
from aaren.data.registry import lookup
from aaren.errors import DataError
from aaren.tasks.event_config import EventsConfig, OwnEventsConfig

CONFIG_WORDS = {  # what the readers of files call their arguments, and how they are given here
    "Columns(...)": "--set own.sequence_column=NAME, own.time_column=NAME or own.mark_column=NAME",
    "sort=True": "--set own.sort=true",
    "drop_duplicates=True": "--set own.drop_duplicates=true",
    "drop_single=True": "--set own.drop_single=true",
}


# New data is read as the training data was: what can be chosen was chosen then.
PREDICTION_WORDS = {
    "Name the columns with Columns(...)": "Call them as the training file did",
    **{argument: f"{key} when training" for argument, key in CONFIG_WORDS.items()},
}


def open_events(config: EventsConfig) -> EventSequences:
    """Read a registered set, or the user's own file."""
    if config.dataset:
        events = load(config.dataset)
    else:
        own = config.own
        events = read_own(Path(config.data_file), own)
        begin, end = own.observed_from, own.observed_until
        events = replace(
            events,
            observed_from=events.observed_from if begin is None else np.full(len(events), begin),
            observed_until=events.observed_until if end is None else np.full(len(events), end),
        )
    if config.max_sequences is not None:
        events = events.select(np.arange(min(config.max_sequences, len(events))))
    is_single = events.lengths < 2
    if is_single.any() and not config.own.drop_single:
        raise DataError(
            f"{events.name}: {int(is_single.sum())} sequences have one event, so no gap to learn from; the "
            f"first is number {int(is_single.argmax())}. Leave them out with --set own.drop_single=true."
        )
    return events.select(~is_single) if is_single.any() else events


def read_own(
    path: Path,
    own: OwnEventsConfig,
    *,
    num_marks: int | None = None,
    mark_names: tuple[str, ...] = (),
    words: Mapping[str, str] = CONFIG_WORDS,
) -> EventSequences:
    """Read the user's own file; what a reader would be told to pass is named as the config calls it."""
    try:
        return event_files.read(
            path,
            columns=own.columns,
            repairs=own.repairs,
            num_marks=num_marks,
            mark_names=mark_names,
            unit=own.unit,
        )
    except DataError as error:
        message = str(error)
        for argument, key in words.items():
            message = message.replace(argument, key)
        raise DataError(message) from error


def comparable_numbers(dataset: str) -> tuple[list[str], str]:
    """Say which published numbers mean the same as ours, and why not the others."""
    if not dataset:
        return [], "own data"
    row = lookup(dataset)
    if dataset == "sin":
        return ["nll", "rmse"], "period and domain as published, so the unit is the same; our own generator"
    if row.is_generated:
        return [], "not among the published sets"
    if row.facts.get("marks", 1) == 1:
        return [], "the unit of the published times is not known, and there are no marks"
    return ["accuracy"], "the unit of the published times is not known"
