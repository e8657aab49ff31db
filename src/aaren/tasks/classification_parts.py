"""The parts of a classification experiment: who trains, who chooses the epoch, who is tested.

Reads files and holds out what the reporting rule needs. Knows nothing of models.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.data.classification.checks import label_numbers, require_trainable
from aaren.data.classification.hold_out import hold_out
from aaren.data.classification.loading import (
    Irregular,
    LabelledSeries,
    find_test_part,
    normalise_across_channels,
    prepare,
)
from aaren.data.classification.ts_format import Cases, read_ts
from aaren.data.files import folders
from aaren.data.files.packed import plain_name
from aaren.data.registry import lookup
from aaren.data.source import on_disk
from aaren.errors import ConfigError, DataError
from aaren.tasks.classification_config import ClassificationConfig

TEST_SEED = 0  # of the test part where the archive has none: the same for all runs
IN_TRAIN = "held-out part of TRAIN"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ClassificationParts:
    """Standardised and padded series, and what was learned from TRAIN to standardise new ones."""

    name: str
    classes: tuple[str, ...]
    train: LabelledSeries
    validation: LabelledSeries  # chooses the epoch
    test: LabelledSeries
    validation_is: str  # TEST, or a part of TRAIN
    test_is: str
    mean: NDArray[np.float64]  # (channels,), over all steps of TRAIN
    deviation: NDArray[np.float64]
    is_normalised_across_channels: bool = False


def open_parts(config: ClassificationConfig, *, seed: int) -> ClassificationParts:
    """Read a dataset, or the user's own files, and part it as the reporting rule says.

    Args:
        config: Of the experiment.
        seed: Of the part of TRAIN that chooses the epoch; a part that stands in for TEST does not depend on
            it.
    """
    name, paths, is_odd, irregular = _find(config)
    raw = [read_ts(path) for path in paths]
    require_trainable(
        dict(zip(map(plain_name, paths), raw, strict=True)), irregular=irregular, held_out=config.held_out
    )
    test_is = "TEST"
    if len(raw) == 1:
        kept, held = hold_out(label_numbers(raw[0]), config.held_out, seed=TEST_SEED)
        raw, test_is = [_pick(raw[0], kept), _pick(raw[0], held)], IN_TRAIN
    data = prepare(
        raw,
        name=name,
        standardise=config.standardise,
        irregular=irregular,
        finish=normalise_across_channels if is_odd else None,
    )
    assert data.test is not None  # there are two parts
    train, validation, validation_is = data.train, data.test, test_is
    if config.rule == "clean" and not config.is_reference:
        kept, held = hold_out(train.labels, config.held_out, seed=seed)
        train, validation, validation_is = select(train, kept), select(train, held), IN_TRAIN
    return ClassificationParts(
        name=name,
        classes=data.classes,
        train=train,
        validation=validation,
        test=data.test,
        validation_is=validation_is,
        test_is=test_is,
        mean=data.mean,
        deviation=data.deviation,
        is_normalised_across_channels=is_odd,
    )


def select(series: LabelledSeries, numbers: Tensor) -> LabelledSeries:
    """Return the cases with these numbers."""
    return LabelledSeries(
        values=series.values[numbers], mask=series.mask[numbers], labels=series.labels[numbers]
    )


def _find(config: ClassificationConfig) -> tuple[str, tuple[Path, ...], bool, Irregular]:
    """Return name, files, whether the odd normalisation is due, and what to do with irregular cases."""
    if config.dataset:
        dataset = lookup(config.dataset)
        paths = on_disk(dataset, or_shipped=True) or tuple(
            folders.require(dataset.setting, file, cure=f"Run: aaren data fetch {dataset.name}")
            for file in dataset.files
        )
        is_odd = dataset.options.get("instance_norm") == "across-channels"
        return dataset.name, paths, is_odd and config.standardise == "protocol", "protocol"
    if not config.data_file:
        raise ConfigError("name a dataset (aaren data list classification) or a data_file of your own.")
    train = Path(config.data_file)
    if not os.path.isfile(train):  # noqa: PTH113  # of names that no disk can hold, pathlib raises
        raise DataError(f"{train} is no file: give NAME_TRAIN.ts (plain, .gz or .xz).")
    test = find_test_part(train)
    paths = (train,) if test is None else (train, test)
    return train.name, paths, False, "protocol" if config.allow_irregular else "strict"


def _pick(cases: Cases, numbers: Tensor) -> Cases:
    chosen: Sequence[list[NDArray[np.float64]]] = [
        case for case, is_kept in zip(cases, _flags(numbers, len(cases)), strict=True) if is_kept
    ]
    return Cases(
        values=np.concatenate([channel for case in chosen for channel in case]),
        lengths=cases.lengths[numbers.numpy()],
        labels=cases.labels[numbers.numpy()],
    )


def _flags(numbers: Tensor, count: int) -> list[bool]:
    flags = torch.zeros(count, dtype=torch.bool)
    flags[numbers] = True
    return [bool(flag) for flag in flags.tolist()]
