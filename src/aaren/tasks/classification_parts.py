"""The parts of a classification experiment: who trains, who chooses the epoch, who is tested.

Reads files, holds out what the reporting rule needs, and refuses what nothing can be learned from. Knows
nothing of models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.data.classification.loading import Irregular, LabelledSeries, normalise_across_channels, prepare
from aaren.data.classification.ts_cases import complete
from aaren.data.classification.ts_format import Cases, read_ts
from aaren.data.files import folders
from aaren.data.files.packed import content_sha256, plain_name
from aaren.data.registry import lookup
from aaren.data.source import on_disk
from aaren.errors import ConfigError, DataError
from aaren.tasks.classification_config import ClassificationConfig

SHORTEST = 2  # steps; in a series of one, attention has nothing to choose from
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
    paths: tuple[Path, ...] = ()

    def checksums(self) -> dict[str, str]:
        """Return the sha256 of every file's unpacked content."""
        return {plain_name(path): content_sha256(path) for path in self.paths}


def open_parts(config: ClassificationConfig, *, seed: int) -> ClassificationParts:
    """Read a dataset, or the user's own files, and part it as the reporting rule says.

    Args:
        config: Of the experiment.
        seed: Of the part of TRAIN that chooses the epoch; a part that stands in for TEST does not depend on
            it.
    """
    name, paths, is_odd, irregular = _find(config)
    raw = [read_ts(path) for path in paths]
    test_is = "TEST"
    if len(raw) == 1:
        require_learnable(_numbers(raw[0].labels), where=f"{name}, TRAIN")
        kept, held = hold_out(_numbers(raw[0].labels), config.held_out, seed=TEST_SEED)
        raw, test_is = [_pick(raw[0], kept), _pick(raw[0], held)], IN_TRAIN
    _require_known_labels(raw[0], raw[1], name)
    data = prepare(
        raw,
        name=name,
        standardise=config.standardise,
        irregular=irregular,
        finish=normalise_across_channels if is_odd else None,
    )
    assert data.test is not None  # there are two parts
    for part, series in ((f"{name}, TRAIN", data.train), (f"{name}, {test_is}", data.test)):
        require_steps(series.mask.sum(1), where=part)
    require_learnable(data.train.labels, where=f"{name}, TRAIN")
    steps = np.concatenate(complete(raw[0], name=name, irregular=irregular))
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
        mean=steps.mean(axis=0),
        deviation=steps.std(axis=0, ddof=1),
        is_normalised_across_channels=is_odd,
        paths=paths,
    )


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


def select(series: LabelledSeries, numbers: Tensor) -> LabelledSeries:
    """Return the cases with these numbers."""
    return LabelledSeries(
        values=series.values[numbers], mask=series.mask[numbers], labels=series.labels[numbers]
    )


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
    if train.is_dir() or not train.exists():
        raise DataError(f"{train} is no file: give NAME_TRAIN.ts (plain, .gz or .xz).")
    test = train.with_name(train.name.replace("_TRAIN.", "_TEST."))
    paths = (train, test) if test != train and test.is_file() else (train,)
    return train.name, paths, False, "protocol" if config.allow_irregular else "strict"


def _require_known_labels(train: Cases, test: Cases, name: str) -> None:
    known = set(train.labels.tolist())
    strange = [str(label) for label in test.labels if label not in known]
    if strange:
        raise DataError(
            f"{name}: {len(strange)} TEST case(s) have labels unseen in TRAIN: "
            f"{', '.join(sorted(set(strange))[:6])}; TRAIN has {', '.join(sorted(known)[:6])}. Correct the "
            f"labels, leave these cases out, or bring TRAIN cases of them."
        )


def _numbers(labels: NDArray[np.str_]) -> Tensor:
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1])


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
