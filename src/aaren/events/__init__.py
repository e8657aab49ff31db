"""Sequences of events at irregular times: read, generated, split and batched by length."""

from aaren.events.data import (
    PROCESS_HORIZON,
    PROCESSES,
    SIN_HORIZON,
    EventSplits,
    generate,
    load,
    make,
    measure,
    split,
    true_process,
)

__all__ = [
    "PROCESSES",
    "PROCESS_HORIZON",
    "SIN_HORIZON",
    "EventSplits",
    "generate",
    "load",
    "make",
    "measure",
    "split",
    "true_process",
]
