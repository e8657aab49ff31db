"""Labelled series as tensors, padded to one length with masks; some of them held out, class by class.

`standardise="protocol"` is what the Time-Series-Library does: TRAIN and TEST are each standardised with their
own statistics (and one dataset gets a further normalisation). `"train"` is the clean alternative: both with
TRAIN's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.classification.data import (
    Case,
    Cases,
    Standardise,
    find_files,
    held_counts,
    normalise_across_channels,
    read_ts,
    scale_parts,
)
from aaren.datasets.catalogue import lookup
from aaren.datasets.dataset import Dataset
from aaren.engine.batches import BatchLoader, require_shape
from aaren.errors import ShapeError


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


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LabelledSeries:
    """One part of a dataset: all series padded to the longest of both parts."""

    values: Tensor  # (cases, t, channels) float32, zeros after the end
    mask: Tensor  # (cases, t) bool, True = real
    labels: Tensor  # (cases,) int64

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, numbers: Tensor) -> "LabelledSeries":
        """Return the cases with these numbers."""
        return LabelledSeries(
            values=self.values[numbers], mask=self.mask[numbers], labels=self.labels[numbers]
        )

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
    deviation: NDArray[np.float64]  # standard deviations: what TRAIN was divided by, but for a last digit


def load(
    name: str | Dataset, *, standardise: Standardise = "protocol", allow_irregular: bool = True
) -> ClassificationData:
    """Load a registered dataset; JapaneseVowels also comes from inside aeon, without a file.

    Args:
        name: Its name or its row of the catalogue.
        standardise: `protocol` (each part with its own statistics) or `train` (both with TRAIN's).
        allow_irregular: Interpolate missing values and thin out cases of unequal channels, as the protocol
            does; otherwise both are errors.
    """
    dataset = lookup(name) if isinstance(name, str) else name
    is_odd = standardise == "protocol" and dataset.options.get("instance_norm") == "across-channels"
    return prepare(
        [read_ts(path) for path in find_files(dataset)],
        name=dataset.name,
        standardise=standardise,
        allow_irregular=allow_irregular,
        finish=normalise_across_channels if is_odd else None,
    )


def open_files(
    train: Path,
    test: Path | None = None,
    *,
    standardise: Standardise = "train",
    allow_irregular: bool = False,
) -> ClassificationData:
    """Read a user's own `.ts` files, plain or compressed."""
    parts = [read_ts(path) for path in (train, test) if path is not None]
    return prepare(parts, name=train.name, standardise=standardise, allow_irregular=allow_irregular)


def prepare(
    parts: Sequence[Cases],
    *,
    name: str,
    standardise: Standardise,
    allow_irregular: bool,
    finish: Callable[[Case], Case] | None = None,
) -> ClassificationData:
    """Make one or two parts (TRAIN, TEST) ready: complete, standardise, pad, number the classes."""
    scaled = scale_parts(
        parts, name=name, standardise=standardise, allow_irregular=allow_irregular, finish=finish
    )
    ready = [
        pad(cases, labels, length=scaled.length)
        for cases, labels in zip(scaled.cases, scaled.labels, strict=True)
    ]
    return ClassificationData(
        name=name,
        classes=scaled.classes,
        train=ready[0],
        test=ready[1] if len(ready) > 1 else None,
        mean=scaled.mean,
        deviation=scaled.deviation,
    )


def pad(cases: Sequence[NDArray[np.floating]], labels: NDArray[np.int64], *, length: int) -> LabelledSeries:
    """Pad cases (t, channels) with zeros at the end to one length, in their own precision."""
    values = np.zeros((len(cases), length, cases[0].shape[1]), dtype=cases[0].dtype)
    mask = np.zeros((len(cases), length), dtype=bool)
    for place, case in enumerate(cases):
        values[place, : len(case)] = case
        mask[place, : len(case)] = True
    return LabelledSeries(
        values=torch.from_numpy(values), mask=torch.from_numpy(mask), labels=torch.from_numpy(labels)
    )


def hold_out(labels: Tensor, fraction: float, *, seed: int) -> tuple[Tensor, Tensor]:
    """Part case numbers into kept and held out, class by class (see `held_counts`).

    >>> kept, held = hold_out(torch.tensor([0] * 8 + [1] * 4 + [2]), 0.25, seed=0)
    >>> len(kept), len(held)
    (10, 3)
    """
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    counts = held_counts(torch.bincount(labels).numpy(), fraction)
    for label, count in enumerate(counts.tolist()):
        numbers = (labels == label).nonzero().squeeze(1)
        if not len(numbers):
            continue
        held[numbers[torch.randperm(len(numbers), generator=generator)[:count]]] = True
    return (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)
