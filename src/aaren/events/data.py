"""The registered event sets: loaded or generated, split as the protocol says, measured for verification.

Sequences stay in the order of the file. A user's own files are read in `aaren.events.files`.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aaren.datasets import catalogue as registry
from aaren.datasets.dataset import Dataset, Fact
from aaren.errors import ConfigError, DataError, unknown_name
from aaren.events.files import read_npz, write_npz
from aaren.events.processes import Hawkes, LogNormalRenewal, PointProcess, Poisson, SinePoisson
from aaren.events.sequences import EventSequences
from aaren.files import folders

TRAIN, VALIDATION, TEST = 0, 1, 2  # as in the `split` array of a file
SIN_HORIZON = 32.0 * np.pi
PROCESS_HORIZON = 100.0  # with a mean gap near 1, about 100 events a sequence, like Sin

PROCESSES: dict[str, tuple[PointProcess, float]] = {  # what a generated set is drawn from, and until when
    "sin": (SinePoisson(), SIN_HORIZON),
    "poisson": (Poisson(rate=1.0), PROCESS_HORIZON),
    "hawkes": (Hawkes(base=0.2, jump=0.8, decay=1.0), PROCESS_HORIZON),
    "renewal": (LogNormalRenewal(location=-0.5, scale=1.0), PROCESS_HORIZON),
}

_UNITS = {  # of the registered files, whose arrays do not say it; an entry's own option "unit" goes before
    "mimic": "years",
    "mooc": "seconds",
    "mooc-partial": "seconds",
    "reddit": "seconds",
    "stackoverflow": "seconds",
    "stackoverflow-partial": "seconds",
    "taxi": "hours",
    "taxi-tritpp": "hours",
    "uber": "hours",
    "uber-sample": "hours",
    "wiki": "seconds",
}


class EventSplits(NamedTuple):
    """The three parts of an event set, and how they were cut."""

    train: EventSequences
    validation: EventSequences
    test: EventSequences
    rule: str


def load(name: str) -> EventSequences:
    """Load a registered event set from disk; a generated one is drawn with seed 0 and needs no file.

    >>> load("sin").unit, len(load("sin"))
    ('time units', 1000)
    """
    dataset = registry.lookup(name)
    if dataset.setting != "events":
        raise ConfigError(f"{dataset.name} is a {dataset.setting} set; this reads events.")
    if dataset.is_generated:
        return generate(dataset.name)
    path = folders.require("events", dataset.files[0], cure=f"Get it with: aaren data fetch {dataset.name}")
    unit = str(dataset.options.get("unit", _UNITS.get(dataset.name, "")))
    return read_npz(path, name=dataset.name, unit=unit)


def generate(name: str, *, count: int = 1_000, seed: int = 0) -> EventSequences:
    """Draw a generated set: "sin" (ours: the paper's is not public), "poisson", "hawkes" or "renewal".

    >>> events = generate("hawkes", count=50)
    >>> len(events), float(events.observed_until[0])
    (50, 100.0)
    """
    process, horizon = _process(name)
    return process.sample(count, horizon=horizon, rng=np.random.default_rng(seed), name=name)


def true_process(name: str) -> PointProcess:
    """Give the process behind a generated set, whose `nll_per_event` is what a perfect model would reach."""
    return _process(name)[0]


def make(name: str, *, count: int = 1_000, seed: int = 0) -> Path:
    """Write a generated set into the data folder as `<name>.npz`, for use outside this library."""
    events = generate(name, count=count, seed=seed)
    parts = split(events)
    codes = np.repeat([TRAIN, VALIDATION, TEST], [len(part) for part in parts[:3]])
    return write_npz(folders.place("events", f"{name}.npz"), events.with_split(codes))


def split(events: EventSequences, *, rule: str = "auto") -> EventSplits:
    """Cut a set into train, validation and test, in file order and without shuffling.

    Args:
        events: The whole set.
        rule: "fractions": the first floor(0.6 n) sequences, the next floor(0.2 n), the rest. "source": the
            file's own split; where it has no validation part, that is the last tenth (floor) of its train
            part. "auto": the source's split where it has train and test parts, else fractions.
    """
    if rule not in ("auto", "fractions", "source"):
        raise unknown_name("split rule", rule, ("auto", "fractions", "source"))
    codes = events.split
    has_source = codes is not None and (codes == TRAIN).any() and (codes == TEST).any()
    if rule == "fractions" or (rule == "auto" and not has_source):
        return _cut(events, _fractions(len(events)), "first 60 %, next 20 %, rest, in file order")
    if codes is None or not has_source:
        raise DataError(
            f"{events.name}: its source has no split with train and test parts. Use rule='fractions'."
        )
    if (codes == VALIDATION).any():
        return _cut(events, codes, "as in the source")
    codes = codes.copy()
    train = np.flatnonzero(codes == TRAIN)
    codes[train[len(train) - len(train) // 10 :]] = VALIDATION
    return _cut(events, codes, "train and test as in the source; validation is the last tenth of train")


def measure(dataset: Dataset) -> dict[str, Fact]:
    """Open a registered set and count what the catalogue states about it."""
    events = load(dataset.name)
    parts = split(events)
    return {
        **events.counts(),
        "train": len(parts.train),
        "validation": len(parts.validation),
        "test": len(parts.test),
        "unit": events.unit,
    }


def _process(name: str) -> tuple[PointProcess, float]:
    if name not in PROCESSES:
        raise unknown_name("generated event set", name, PROCESSES)
    return PROCESSES[name]


def _fractions(count: int) -> NDArray[np.int64]:
    train, validation = count * 6 // 10, count * 2 // 10
    if not train or not validation:
        raise DataError(
            f"{count} sequences are too few for a 60/20/20 split; give at least 5. One long stream can be "
            "cut by day or by session, each a sequence of its own."
        )
    return np.repeat([TRAIN, VALIDATION, TEST], [train, validation, count - train - validation])


def _cut(events: EventSequences, codes: NDArray[np.int64], rule: str) -> EventSplits:
    train, validation, test = (events.select(codes == code) for code in (TRAIN, VALIDATION, TEST))
    return EventSplits(train, validation, test, rule)
