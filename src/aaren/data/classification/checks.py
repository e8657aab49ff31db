"""What nothing can be learned from is refused, by training and by a look at a user's file alike.

Cases are named by their place in the file, so the checks come before anything is held out.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from aaren.data.classification.hold_out import hold_out
from aaren.data.classification.ts_cases import complete
from aaren.data.classification.ts_format import Cases
from aaren.errors import DataError

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
