"""Series as scikit-learn and aeon hold them: read, checked, scaled; and their labels.

Panels are 3-D arrays (cases, channels, steps) or collections of series; a 2-D table is left to scikit-learn's
own checks.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.classification.data import SHORTEST, Case
from aaren.errors import DataError
from aaren.stream.session import largest

SHOWN = 6  # labels that an error names


def read_panel(panel: object) -> list[Case] | None:
    """Return the cases of a 3-D array or of a collection of series; None for anything else.

    A collection is a list, a tuple, an array of objects or a pandas series; its series are (channels, steps)
    or (steps,). A nested frame has a series in every cell, a row per case and a column per channel.

    >>> [case.shape for case in read_panel([np.zeros((2, 5)), np.ones((2, 7))])]
    [(5, 2), (7, 2)]
    >>> read_panel(np.zeros((4, 10))) is None
    True
    """
    if getattr(panel, "ndim", None) == 3:
        items: Sequence[object] = list(_numbers(panel, "X"))
    else:
        found = _items(panel)
        if found is None:
            return None
        items = found
    if not items:
        raise DataError("X holds no case at all: expected at least one series.")
    axes = {_depth(item) for item in items}
    if axes == {1}:
        return [_numbers(item, f"case {place}").reshape(-1, 1) for place, item in enumerate(items)]
    if axes == {2}:
        return [np.ascontiguousarray(_numbers(item, f"case {place}").T) for place, item in enumerate(items)]
    if 2 in axes:
        raise DataError(
            "a list of series must hold one array (channels, steps) per case; some of these have other axes."
        )
    return None


def is_table(panel: object) -> bool:
    """Tell whether lists of numbers are a table to scikit-learn: all of one length."""
    if not (isinstance(panel, list | tuple) and all(isinstance(row, list | tuple) for row in panel)):
        return False
    return len({len(row) for row in panel}) == 1 and all(_depth(row) == 1 for row in panel)


def from_table(table: Case) -> list[Case]:
    """Return the rows of a table as series of one channel."""
    if table.shape[1] < SHORTEST:
        raise DataError(
            f"X has n_features = {table.shape[1]}: each row of a 2-D array is a series of one channel, and a "
            f"series has at least {SHORTEST} time steps. For other shapes pass (cases, channels, steps)."
        )
    return [row.reshape(-1, 1) for row in table]


def check_cases(cases: Sequence[Case], *, num_channels: int | None = None) -> int:
    """Raise unless all cases are series without gaps and of the same channels; return how many channels."""
    expected = cases[0].shape[1] if num_channels is None else num_channels
    if not expected:
        raise DataError("X, case 0: no channel at all; a panel is (cases, channels, steps).")
    for place, case in enumerate(cases):
        if case.shape[1] != expected:
            whose = "the first case has" if num_channels is None else "the estimator was fitted on"
            raise DataError(
                f"X, case {place}: {case.shape[1]} channel(s); {whose} {expected}. A case is (channels, "
                f"steps), a panel (cases, channels, steps)."
            )
        if len(case) < SHORTEST:
            cure = "Leave it out."
            if expected > 1 and all(len(other) == 1 for other in cases):
                cure = "A panel is (cases, channels, steps): transpose it, X.transpose(0, 2, 1)."
            raise DataError(
                f"X, case {place} has {len(case)} time step(s); a series has at least {SHORTEST}. {cure}"
            )
        if not np.isfinite(case).all():
            step, channel = np.argwhere(~np.isfinite(case))[0]
            raise DataError(
                f"X, case {place} holds {case[step, channel]} (channel {channel}, step {step}); NaN and "
                f"infinity cannot be learned from. Interpolate, or leave the case out."
            )
    return expected


def scale(cases: Sequence[Case], mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> list[Case]:
    """Return cases at the scale of training; what the model, in float32, cannot compute with is refused."""
    most = largest(torch.float32)
    scaled = []
    for place, case in enumerate(cases):
        with np.errstate(over="ignore", invalid="ignore"):
            scaled.append((case - mean) / deviation)
        wrong = ~((np.abs(scaled[-1]) <= most) & np.isfinite(deviation))  # of an infinite one all would be 0
        if wrong.any():
            step, channel = np.argwhere(wrong)[0]
            raise DataError(
                f"X, case {place} holds {case[step, channel]:g} (channel {channel}, step {step}); at the "
                f"scale of training, mean {mean[channel]:g} and standard deviation {deviation[channel]:g}, "
                f"that is too large to compute with. Divide the channel first, or leave the case out."
            )
    return scaled


def batches(cases: Sequence[Case], *, size: int, by_length: bool, least: int) -> Iterator[list[int]]:
    """Part case numbers into batches, if asked so that all cases of a batch are padded to the same length.

    Args:
        cases: all of them.
        size: of a batch, at most.
        by_length: never mix lengths above `least`.
        least: length that shorter cases are padded to anyway.
    """
    groups: dict[int, list[int]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(max(least, len(case)) if by_length else 0, []).append(number)
    for numbers in groups.values():
        yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


def require_comparable(labels: NDArray[np.generic]) -> None:
    """Raise if a label is missing, or if labels are of types that cannot be sorted together."""
    if labels.dtype.kind != "O":
        return
    examples: dict[str, object] = {}
    for place, label in enumerate(labels.ravel().tolist()):
        if label is None:
            raise DataError(f"y: case {place} has no label (None). Leave it out, or give it one.")
        examples.setdefault(type(label).__name__, label)
    try:
        np.unique(labels)
    except TypeError as error:
        raise DataError(
            f"y holds labels of several types: {', '.join(sorted(examples))}, such as "
            f"{' and '.join(repr(examples[name]) for name in sorted(examples))}. Give all the same type: "
            f"y.astype(str)."
        ) from error


def require_seen(labels: NDArray[np.generic], classes: NDArray[np.generic]) -> None:
    """Raise if there are labels that are not among the classes."""
    require_comparable(labels)
    known = classes.tolist()
    strange = [label for label in np.unique(labels).tolist() if label not in known]
    if not strange:
        return
    cure = "Leave these cases out, or fit with cases of them."
    if {str(label) for label in strange} <= {str(label) for label in known}:
        cure = f"The same text, another type: y.astype({type(known[0]).__name__})."
    raise DataError(
        f"y holds labels unseen in fit: {', '.join(map(repr, strange[:SHOWN]))}; fit saw "
        f"{', '.join(map(repr, known[:SHOWN]))}. {cure}"
    )


def _numbers(given: object, name: str) -> Case:
    try:
        found = np.asarray(given)
        if found.dtype.kind != "c":
            return found.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        why = str(error).rstrip(".")
        raise DataError(f"{name}: expected numbers of equal length per channel; {why}.") from error
    raise DataError(
        f"{name} holds complex numbers; a series is real. Give real and imaginary parts as two channels."
    )


def _items(panel: object) -> list[object] | None:
    """Return what a collection holds, one item per case; None if it is no collection."""
    if isinstance(panel, list | tuple):
        return list(panel)
    array = panel.to_numpy() if hasattr(panel, "to_numpy") else panel  # of pandas
    if not isinstance(array, np.ndarray) or array.dtype.kind != "O":
        return None
    if array.ndim == 2 and array.size and all(_depth(cell) == 1 for cell in array.flat):
        return [list(row) for row in array]
    return list(array) if array.ndim == 1 else None


def _depth(item: object) -> int:
    """Count the axes of a nested list or array."""
    if hasattr(item, "ndim"):
        return int(item.ndim)
    if isinstance(item, list | tuple):
        return 1 + (_depth(item[0]) if item else 0)
    return 0
