"""What a classifier is fed: tensors that were checked to fit together.

Labelled series for classification: standardised, padded to one length, with masks.

`standardise="protocol"` is what the Time-Series-Library does: TRAIN and TEST are each standardised with their
own statistics (and one dataset gets a further normalisation). `"train"` is the clean alternative: both with
TRAIN's. Knows nothing of models.

Hold out some cases, class by class: to choose an epoch, or to test where there is no TEST.

What nothing can be learned from is refused, by training and by a look at a user's file alike.

Cases are named by their place in the file, so the checks come before anything is held out.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.classification.ts import Cases, complete, longest, read_ts
from aaren.datasets.catalogue import lookup
from aaren.datasets.dataset import Dataset, Fact
from aaren.datasets.fetch import shipped_file
from aaren.datasets.numbers import narrow
from aaren.engine.batches import BatchLoader, require_shape
from aaren.errors import ConfigError, DataError, ShapeError
from aaren.files import folders
from aaren.files.archive import plain_name


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LabelledBatch:
    """Series of one length, padded with zeros at the end, and the class of each."""

    values: Tensor  # (b, t, channels)
    mask: Tensor  # (b, t) bool, True = real
    labels: Tensor  # (b,) int64

    def __post_init__(self) -> None:
        b, t, _ = self.values.shape
        require_shape("mask", self.mask, (b, t))
        require_shape("labels", self.labels, (b,))
        if self.mask.dtype != torch.bool:
            raise ShapeError(f"mask must be bool, True = real; got {self.mask.dtype}.")

    def __len__(self) -> int:
        return len(self.values)


Standardise: TypeAlias = Literal["protocol", "train"]
Irregular: TypeAlias = Literal["protocol", "strict"]
Case: TypeAlias = NDArray[np.float64]  # (t, channels)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LabelledSeries:
    """One part of a dataset: all series padded to the longest of both parts."""

    values: Tensor  # (cases, t, channels) float32, zeros after the end
    mask: Tensor  # (cases, t) bool, True = real
    labels: Tensor  # (cases,) int64

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: Tensor) -> LabelledBatch:
        """Copy the cases with these numbers into a batch."""
        return LabelledBatch(
            values=self.values.index_select(0, numbers),
            mask=self.mask.index_select(0, numbers),
            labels=self.labels.index_select(0, numbers),
        )

    def loader(
        self, *, batch_size: int = 16, seed: int = 0, is_shuffled: bool = True
    ) -> BatchLoader[LabelledBatch]:
        """Walk over the part; no partial batch is dropped."""
        return BatchLoader(
            size=len(self), take=self.take, batch_size=batch_size, seed=seed, is_shuffled=is_shuffled
        )


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ClassificationData:
    """A dataset ready for classification."""

    name: str
    classes: tuple[str, ...]  # in sorted order of their texts; a label is a place in this list
    train: LabelledSeries
    test: LabelledSeries | None  # None where only a training part exists
    mean: NDArray[np.float64]  # (channels,), over all steps of TRAIN
    deviation: NDArray[np.float64]  # what TRAIN was divided by, but for a last digit


def load(
    name: str | Dataset, *, standardise: Standardise = "protocol", irregular: Irregular = "protocol"
) -> ClassificationData:
    """Load a registered dataset; JapaneseVowels also comes from inside aeon, without a file.

    Args:
        name: Its name or its row of the registry.
        standardise: `protocol` (each part with its own statistics) or `train` (both with TRAIN's).
        irregular: `protocol` interpolates missing values and thins out cases of unequal channels; `strict`
        raises.
    """
    dataset = lookup(name) if isinstance(name, str) else name
    parts = [read_ts(_path(dataset, file)) for file in dataset.files]
    is_odd = standardise == "protocol" and dataset.options.get("instance_norm") == "across-channels"
    return prepare(
        parts,
        name=dataset.name,
        standardise=standardise,
        irregular=irregular,
        finish=normalise_across_channels if is_odd else None,
    )


def open_files(
    train: Path,
    test: Path | None = None,
    *,
    standardise: Standardise = "train",
    irregular: Irregular = "strict",
) -> ClassificationData:
    """Read a user's own `.ts` files, plain or compressed."""
    parts = [read_ts(path) for path in (train, test) if path is not None]
    return prepare(parts, name=train.name, standardise=standardise, irregular=irregular)


def find_test_part(train: Path) -> Path | None:
    """Find NAME_TEST.ts beside NAME_TRAIN.ts, packed like it or otherwise."""
    name = plain_name(train)
    expected = name.replace("_TRAIN.", "_TEST.")
    if expected == name:
        return None
    packings = [train.name.removeprefix(name), "", ".gz", ".xz"]
    places = (train.with_name(expected + packing) for packing in packings)
    # Of names that no disk can hold, pathlib raises.
    return next((place for place in places if os.path.isfile(place)), None)  # noqa: PTH113


def prepare(
    parts: Sequence[Cases],
    *,
    name: str,
    standardise: Standardise,
    irregular: Irregular,
    finish: Callable[[Case], Case] | None = None,
) -> ClassificationData:
    """Make one or two parts (TRAIN, TEST) ready: complete, standardise, pad, number the classes."""
    if standardise not in ("protocol", "train"):
        raise ConfigError(f"standardise must be 'protocol' or 'train'; got {standardise!r}.")
    widths = {part.lengths.shape[1] for part in parts}
    if len(widths) > 1:
        raise DataError(f"{name}: TRAIN and TEST must have the same channels; got {sorted(widths)}.")
    classes = tuple(sorted({str(label) for part in parts for label in part.labels}))
    cases = [complete(part, name=name, irregular=irregular) for part in parts]
    if standardise == "protocol":
        statistics = [_statistics(part) for part in cases]
    else:
        statistics = [steady_statistics(cases[0])] * len(cases)
    length = longest(cases)
    ready = [
        _pad(
            [
                narrow(
                    _scale(case, *numbers, finish),
                    name=f"{name}, case {place}, scaled (step, channel)",
                    cure="It is too far from the rest of its channel: correct the case or leave it out.",
                )
                for place, case in enumerate(part)
            ],
            _numbers(raw.labels, classes),
            length,
        )
        for part, raw, numbers in zip(cases, parts, statistics, strict=True)
    ]
    mean, deviation = statistics[0]
    return ClassificationData(
        name=name,
        classes=classes,
        train=ready[0],
        test=ready[1] if len(ready) > 1 else None,
        mean=mean,
        deviation=deviation,
    )


def steady_statistics(cases: Sequence[Case]) -> tuple[Case, Case]:
    """Return mean and deviation of every channel over all steps; a channel that never moves has deviation 1.

    Such a channel has no scale: whatever moves in it later keeps its own.
    """
    mean, deviation = _statistics(cases)
    return mean, np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)


def normalise_across_channels(case: Case) -> Case:
    """Centre each channel over time, then divide each time step by its deviation across the channels.

    What the Time-Series-Library does to EthanolConcentration; the axis looks like a slip, but it is what
    runs.
    """
    centred = case - case.mean(axis=0, keepdims=True)
    scaled: Case = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5)
    return scaled


def measure(dataset: Dataset) -> dict[str, Fact]:
    """Open a dataset's files and count what the registry claims to know."""
    parts = [read_ts(_path(dataset, file)) for file in dataset.files]
    sizes: dict[str, Fact] = {"train": len(parts[0])}
    if len(parts) > 1:
        sizes["test"] = len(parts[1])
    return {
        **sizes,
        "channels": parts[0].lengths.shape[1],
        "length": max(int(part.lengths.max()) for part in parts),
        "classes": len({str(label) for part in parts for label in part.labels}),
    }


def _path(dataset: Dataset, file: str) -> Path:
    path = folders.find(dataset.setting, file) or shipped_file(file)
    return path or folders.require(dataset.setting, file, cure=f"Run: aaren data fetch {dataset.name}")


def _statistics(cases: Sequence[Case]) -> tuple[Case, Case]:
    steps = np.concatenate(cases)
    if len(steps) < 2:
        raise DataError("one time step in all cannot be standardised: give series of at least two steps.")
    return steps.mean(axis=0), steps.std(axis=0, ddof=1)


def _scale(case: Case, mean: Case, deviation: Case, finish: Callable[[Case], Case] | None) -> Case:
    scaled: Case = (case - mean) / (deviation + np.finfo(np.float64).eps)
    return finish(scaled) if finish else scaled


def _numbers(labels: NDArray[np.str_], classes: tuple[str, ...]) -> Tensor:
    places = {label: place for place, label in enumerate(classes)}
    return torch.tensor([places[str(label)] for label in labels], dtype=torch.int64)


def _pad(cases: Sequence[NDArray[np.float32]], labels: Tensor, length: int) -> LabelledSeries:
    values = np.zeros((len(cases), length, cases[0].shape[1]), dtype=np.float32)
    mask = np.zeros((len(cases), length), dtype=bool)
    for place, case in enumerate(cases):
        values[place, : len(case)] = case
        mask[place, : len(case)] = True
    return LabelledSeries(values=torch.from_numpy(values), mask=torch.from_numpy(mask), labels=labels)


def hold_out(labels: Tensor, fraction: float, *, seed: int) -> tuple[Tensor, Tensor]:
    """Part case numbers into kept and held out, class by class, so that both know as many classes as can be.

    Of a class with two or more cases at least one goes to each side; a single case is kept.

    >>> kept, held = hold_out(torch.tensor([0] * 8 + [1] * 4 + [2]), 0.25, seed=0)
    >>> len(kept), len(held)
    (10, 3)
    """
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(int(labels.max()) + 1):
        numbers = (labels == label).nonzero().squeeze(1)
        if not len(numbers):
            continue
        count = min(len(numbers) - 1, max(1, round(fraction * len(numbers))))
        held[numbers[torch.randperm(len(numbers), generator=generator)[:count]]] = True
    if not held.any():
        raise DataError(
            f"none of {len(labels)} cases can be held out: every class has a single one. Bring more cases, "
            f"or a TEST part of its own."
        )
    return (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)


SHORTEST = 2  # steps; in a series of one, attention has nothing to choose from
HELD_OUT = 0.2  # of TRAIN, to test on where there is no TEST


def require_trainable(
    parts: Mapping[str, Cases], *, irregular: Literal["protocol", "strict"], held_out: float = HELD_OUT
) -> None:
    """Raise if a training part, alone or with its TEST, cannot be learned from.

    Args:
        parts: TRAIN and, if there is one, TEST, by the names that errors give them.
        irregular: What `complete` does with missing values and uneven channels.
        held_out: Fraction of TRAIN to test on where there is no TEST.
    """
    for name, cases in parts.items():
        require_series(cases, name=name, irregular=irregular)
    (name, train), *rest = parts.items()
    labels = label_numbers(train)
    require_learnable(labels, where=name)
    for other, test in rest:
        _require_known_labels(train, test, where=other)
    if not rest:
        kept, held = hold_out(labels, held_out, seed=0)  # how many does not depend on the seed
        if int(torch.bincount(labels[kept]).max()) < 2:
            raise DataError(
                f"{name}: {len(held)} of {len(labels)} cases are held out, for there is no TEST part, and of "
                f"the others no class keeps two. Bring more cases or a TEST part."
            )


def require_series(cases: Cases, *, name: str, irregular: Literal["protocol", "strict"]) -> None:
    """Raise if a case is not a series of finite numbers with at least two steps."""
    lengths = [len(case) for case in complete(cases, name=name, irregular=irregular)]
    require_steps(torch.tensor(lengths), where=name)


def require_learnable(labels: Tensor, *, where: str) -> None:
    """Raise unless there are at least two classes and one of them has two cases."""
    counts = torch.bincount(labels)
    num_classes = int((counts > 0).sum())
    if num_classes < 2:
        raise DataError(
            f"{where}: {len(labels)} case(s) of one class only; to tell classes apart takes at least two. "
            f"Bring cases of another class."
        )
    if int(counts.max()) < 2:
        raise DataError(
            f"{where}: {len(labels)} cases for {num_classes} classes: every case has a label of its own. Are "
            f"these numbers to be predicted (regression)? Otherwise bring more cases of each class."
        )


def require_steps(lengths: Tensor, *, where: str) -> None:
    """Raise if a series has no or only one step."""
    short = (lengths < SHORTEST).nonzero().flatten()
    if len(short):
        case = int(short[0])
        raise DataError(
            f"{where}: case {case} has {int(lengths[case])} time step(s); a series has at least {SHORTEST}. "
            f"Leave it out ({len(short)} such case(s))."
        )


def label_numbers(cases: Cases) -> Tensor:
    """Number the labels in sorted order of their texts."""
    return torch.from_numpy(np.unique(cases.labels, return_inverse=True)[1])


def _require_known_labels(train: Cases, test: Cases, *, where: str) -> None:
    known = set(train.labels.tolist())
    strange = [str(label) for label in test.labels if label not in known]
    if strange:
        raise DataError(
            f"{where}: {len(strange)} case(s) have labels unseen in TRAIN: "
            f"{', '.join(sorted(set(strange))[:6])}; TRAIN has {', '.join(sorted(known)[:6])}. Correct the "
            f"labels, leave these cases out, or bring TRAIN cases of them."
        )
