"""Series as scikit-learn and aeon hold them: read, checked, scaled; and their labels.

Panels are 3-D arrays (cases, channels, steps), collections of series, or frames with an index of series and
time; a 2-D table, one series per row, is left to scikit-learn's own checks.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from aaren.classification.data import SHORTEST, Case
from aaren.datasets.numbers import refuse_masked
from aaren.errors import DataError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

SHOWN = 6  # labels that an error names
FEW_STEPS, MANY_CHANNELS = 16, 2  # a longest series so short, with so many times as many channels, is suspect
FILL_VALUE = 1e9  # times as far from the median as nine of ten other values: no measurement
LEVELS = 2  # of an index: series and time
# Columns of a table of series that are no time step; capitals do not matter.
SERIES_NAMES = {"id", "unique_id"} | {
    name + ending
    for name in ("case", "series", "sequence", "session", "subject", "user", "device", "machine")
    for ending in ("", "_id")
}
TIME_NAMES = {"time", "timestamp", "datetime", "date", "ds", "step"}
LABEL_NAMES = {"label", "class", "target", "y"}


def read_panel(panel: object) -> list[Case] | None:
    """Return the cases of a 3-D array or of a collection of series; None for anything else.

    A collection is a list, a tuple, an array of objects or a pandas series; its series are (channels, steps)
    or (steps,), or frames whose named columns are the channels. A frame with an index of series and time has
    a column per channel. A nested frame has a series in every cell, a row per case and a column per channel.

    >>> [case.shape for case in read_panel([np.zeros((2, 5)), np.ones((2, 7))])]
    [(5, 2), (7, 2)]
    >>> read_panel(np.zeros((4, 10))) is None
    True
    """
    if has_levels(panel):
        return _by_levels(panel)
    refuse_masked(list(panel) if _is_collection(panel) else panel, name="X")
    if getattr(panel, "ndim", None) == 3:
        items: Sequence[object] = list(_numbers(panel, "X"))
    else:
        found = _items(panel)
        if found is None:
            return None
        items = found
    if not items:
        raise DataError("X holds no case at all: expected at least one series.")
    items = _channels_first(items)
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


def has_levels(panel: object) -> "TypeGuard[pandas.DataFrame]":
    """Tell whether this is a frame with an index of series and time."""
    return is_frame(panel) and getattr(panel.index, "nlevels", 1) == LEVELS


def is_frame(panel: object) -> "TypeGuard[pandas.DataFrame]":
    """Tell whether this is a frame of pandas, which need not be installed."""
    return hasattr(panel, "iloc") and getattr(panel, "ndim", None) == LEVELS


def require_rows(panel: object) -> None:
    """Raise unless a table has one series per row and nothing but time steps in its columns."""
    if getattr(panel, "ndim", None) == 1:
        raise DataError(  # its first words are those that scikit-learn's own checks look for
            "Reshape your data: X holds several series, one per row; got one axis. For a single series pass "
            "X[np.newaxis], which is (1, steps)."
        )
    if not is_frame(panel):
        return
    frame, names = panel, {str(name).strip().lower(): name for name in reversed(panel.columns)}
    series, time, label = (
        next((names[name] for name in names if name in known), None)
        for known in (SERIES_NAMES, TIME_NAMES, LABEL_NAMES)
    )
    if time is not None or (series is not None and frame[series].duplicated().any()):
        index = ", ".join("..." if name is None else repr(name) for name in (series, time))
        raise DataError(
            f"X has the columns {_listed(frame.columns)}. If its rows are samples, put series and time into "
            f"the index, X.set_index([{index}]).sort_index(), and give y one label per series. If its rows "
            f"are whole series, leave out what is no time step."
        )
    for name in (series, label):
        if name is not None:
            raise DataError(
                f"X has a column {name!r}, which would be read as a time step: each row of a table is one "
                f"series. Take it out, X.drop(columns={name!r}); labels go into y."
            )
    _require_numbers(frame, "each row of a table is one series, each column a time step")
    wrong = np.argwhere(~np.isfinite(frame.to_numpy(dtype=np.float64, na_value=np.nan)))
    if len(wrong):
        row, step = wrong[0]
        raise DataError(
            f"X, row {frame.index[row]}, column {frame.columns[step]!r} holds {frame.iat[row, step]}; NaN "
            f"and infinity cannot be learned from. Interpolate, X.interpolate(axis=1), or leave the row out. "
            f"Series of several lengths are a list of arrays."
        )


def match_labels(panel: object, labels: Any) -> Any:  # Any: an array, a list or a Series of pandas
    """Return labels in the order of the series: a Series of pandas by its index, where that names them."""
    if not has_levels(panel):
        return labels
    names = panel.index.unique(level=0)
    if len(labels) == len(panel) != len(names):
        raise DataError(
            f"y has a label for each of the {len(panel)} rows of X; give one for each of its {len(names)} "
            f"series: y.groupby(level=0).first()."
        )
    if not hasattr(labels, "loc") or len(labels) != len(names):
        return labels
    return labels.loc[names] if labels.index.is_unique and labels.index.isin(names).all() else labels


def warn_if_transposed(cases: Sequence[Case]) -> None:
    """Warn of short series of very many channels: usually the axes are exchanged."""
    longest, channels = max(map(len, cases)), cases[0].shape[1]
    if longest <= FEW_STEPS and channels >= MANY_CHANNELS * longest:
        warnings.warn(
            f"X has {channels} channels of up to {longest} time steps. A panel is (cases, channels, steps); "
            f"one of (cases, steps, channels) must be transposed: X.transpose(0, 2, 1), or [x.T for x in X].",
            stacklevel=3,
        )


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
            cure = ""
            if len({len(other) for other in cases}) == 1:
                cure = f" If it has {len(case)} channels, transpose: [x.T for x in X]."
            raise DataError(
                f"X, case {place}: {case.shape[1]} channel(s); {whose} {expected}. A case is (channels, "
                f"steps), a panel (cases, channels, steps).{cure}"
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


def refuse_fill_values(cases: Sequence[Case]) -> None:
    """Raise for a value that is too far from the others of its channel to be a measurement."""
    values = np.concatenate(cases)
    with np.errstate(over="ignore"):
        distances = np.abs(values - np.median(values, axis=0))
        usual = np.quantile(distances, 0.9, axis=0)
        smallest = np.where(distances > 0.0, distances, np.inf).min(axis=0)
        wrong = distances > FILL_VALUE * np.where(usual > 0.0, usual, smallest)
    if not wrong.any():
        return
    row, channel = np.argwhere(wrong)[0]
    ends = np.cumsum([len(case) for case in cases])
    place = int(np.searchsorted(ends, row, side="right"))
    step = row - ends[place] + len(cases[place])
    raise DataError(
        f"X, case {place} holds {values[row, channel]:g} (channel {channel}, step {step}), more than "
        f"{FILL_VALUE:g} times as far from the median as the others: a fill value? Interpolate, or leave "
        f"the case out."
    )


def scale(cases: Sequence[Case], mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> list[Case]:
    """Return cases at the scale of training; values that are no measurements beside those are refused."""
    scaled = []
    for place, case in enumerate(cases):
        with np.errstate(over="ignore", invalid="ignore"):
            scaled.append((case - mean) / deviation)
        wrong = ~(
            (np.abs(scaled[-1]) <= FILL_VALUE) & np.isfinite(deviation)
        )  # of an infinite one all would be 0
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


def _by_levels(frame: "pandas.DataFrame") -> list[Case]:
    """Return the series of a frame whose index is (series, time), in the order of the index."""
    if not len(frame):
        raise DataError("X holds no case at all: expected at least one series.")
    if not frame.index.is_monotonic_increasing:
        raise DataError("the index of X, series and time, is not sorted. Sort it: X.sort_index().")
    if not frame.index.is_unique:
        name, time = frame.index[frame.index.duplicated()][0]
        raise DataError(f"X, series {name}: the time {time} comes twice. Keep one row of each.")
    _require_numbers(frame, "with an index of series and time each column is a channel")
    values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    starts = np.flatnonzero(~frame.index.get_level_values(0).duplicated())
    return [np.ascontiguousarray(case) for case in np.split(values, starts[1:])]


def _require_numbers(frame: "pandas.DataFrame", why: str) -> None:
    for name, column in frame.items():
        if column.dtype.kind not in "biuf" and len(column):
            raise DataError(
                f"X, column {name!r}: expected numbers; got {column.iloc[0]!r}: {why}. Labels go into y."
            )


def _channels_first(items: Sequence[object]) -> Sequence[object]:
    """Turn frames whose columns have names, and so are channels, into (channels, steps)."""
    named = [
        tuple(item.columns)
        for item in items
        if is_frame(item) and all(isinstance(name, str) for name in item.columns)
    ]
    if not named:
        return items
    for place, names in enumerate(named):
        if names != named[0] or len(named) != len(items):
            raise DataError(
                f"X, case {place}: channels {_listed(names)}; the first case has {_listed(named[0])}. Give "
                f"all frames the same columns, in the same order."
            )
    return [item.to_numpy().T for item in items if is_frame(item)]


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(repr, list(names)[:SHOWN])) + (", ..." if len(names) > SHOWN else "")


def _numbers(given: object, name: str) -> Case:
    try:
        found = np.asarray(given)
        if found.dtype.kind != "c":
            return found.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        why = str(error).rstrip(".")
        raise DataError(f"{name}: expected numbers of equal length per channel; {why}.") from error
    raise DataError(
        f"{name} holds complex numbers; a series is real. Give real and imaginary parts as two channels."
    )


def _is_collection(panel: object) -> TypeGuard[NDArray[np.object_]]:
    return isinstance(panel, np.ndarray) and panel.dtype.kind == "O" and panel.ndim == 1


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
