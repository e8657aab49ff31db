"""Event sequences in a file, whatever its format; and our own flat `.npz` layout.

Arrays of the layout: `times` float64 and `offsets` int (both required), `marks` int from 0, `split` int per
sequence (0 train, 1 validation, 2 test), a scalar `t_max` (observed over [0, t_max]) or `observed_from` and
`observed_until` per sequence, `num_marks`, `mark_names`, `unit`. Knows nothing of registered datasets.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aaren.data.events import records as event_records
from aaren.data.events import table as event_table
from aaren.data.events.grouping import Repairs
from aaren.data.events.sequences import EventSequences
from aaren.data.events.table import Columns
from aaren.data.files import npz
from aaren.data.files.packed import refuse_pickle
from aaren.data.numbers import LARGEST_WHOLE, reals, wholes
from aaren.errors import DataError


def read(
    path: str | Path,
    *,
    columns: Columns | None = None,
    repairs: Repairs | None = None,
    num_marks: int | None = None,
    mark_names: tuple[str, ...] = (),
    unit: str = "",
) -> EventSequences:
    """Read a user's events from `.csv`, `.parquet`, `.json`/`.jsonl` (EasyTPP's record) or our `.npz` layout.

    Args:
        path: The file; tables and records may lie behind `.gz` or `.xz`.
        columns: What a table's columns are called.
        repairs: What may be mended quietly; by default every fault raises.
        num_marks: Number of kinds, when the file may not show them all.
        mark_names: Names of the kinds of a model at hand, so that new data gets the same numbers.
        unit: The unit of the times, for people and records.
    """
    path = Path(path)
    refuse_pickle(path)
    kind = next((suffix for suffix in reversed(path.suffixes) if suffix not in (".gz", ".xz")), "")
    if kind == ".npz":
        return read_npz(path, unit=unit)
    if kind in (".csv", ".parquet"):
        return event_table.read_table(
            path,
            columns=columns or Columns(),
            repairs=repairs or Repairs(),
            num_marks=num_marks,
            mark_names=mark_names,
            unit=unit,
        )
    if kind in (".json", ".jsonl"):
        return event_records.read_records(path, repairs=repairs or Repairs(), unit=unit)
    raise DataError(f"{path}: expected .csv, .parquet, .json, .jsonl or .npz; got {kind or 'no suffix'!r}.")


def read_npz(path: Path, *, name: str = "", unit: str = "") -> EventSequences:
    """Read the `.npz` layout, plain or behind `.gz` or `.xz`."""
    arrays = npz.load(path, required=("times", "offsets"))
    offsets = wholes(arrays["offsets"], name=f"{path}: offsets")
    marks = None
    if "marks" in arrays:
        marks = wholes(arrays["marks"], name=f"{path}: marks", least=-LARGEST_WHOLE)
    begin, end = (
        reals(arrays[key], name=f"{path}: {key}") if key in arrays else None
        for key in ("observed_from", "observed_until")
    )
    if "t_max" in arrays:
        until = float(reals(_single(path, arrays, "t_max"), name=f"{path}: t_max"))
        begin, end = np.zeros(max(0, offsets.size - 1)), np.full(max(0, offsets.size - 1), until)
    num_marks = 1 if marks is None or not marks.size else max(1, int(marks.max()) + 1)
    if "num_marks" in arrays:
        num_marks = int(wholes(_single(path, arrays, "num_marks"), name=f"{path}: num_marks", least=1))
    return EventSequences(
        times=reals(arrays["times"], name=f"{path}: times"),
        offsets=offsets,
        marks=marks,
        num_marks=num_marks,
        mark_names=_texts(path, arrays["mark_names"]) if "mark_names" in arrays else (),
        unit=unit or (str(_single(path, arrays, "unit")) if "unit" in arrays else "time units"),
        observed_from=begin,
        observed_until=end,
        split=wholes(arrays["split"], name=f"{path}: split", most=2) if "split" in arrays else None,
        name=name or str(path),
    )


def _single(path: Path, arrays: npz.Arrays, key: str) -> NDArray[np.generic]:
    if arrays[key].size != 1:
        raise DataError(f"{path}: {key} must be a single value; got {arrays[key].shape}.")
    return arrays[key].reshape(())


def _texts(path: Path, names: NDArray[np.generic]) -> tuple[str, ...]:
    if names.dtype.kind != "U" or names.ndim != 1:
        raise DataError(f"{path}: mark_names must be a list of texts; got {names.dtype} {names.shape}.")
    return tuple(names.tolist())


def write_npz(path: Path, events: EventSequences) -> Path:
    """Write the `.npz` layout, whole or not at all."""
    arrays: npz.Arrays = {
        "times": events.times,
        "offsets": events.offsets,
        "unit": np.asarray(events.unit),
        "num_marks": np.asarray(events.num_marks),
    }
    if events.marks is not None:
        arrays["marks"] = events.marks.astype(np.int32)
    if events.mark_names:
        arrays["mark_names"] = np.asarray(events.mark_names)
    if events.split is not None:
        arrays["split"] = events.split.astype(np.int8)
    if events.observed_from is not None:
        arrays["observed_from"] = events.observed_from
    if events.observed_until is not None:
        arrays["observed_until"] = events.observed_until
    return npz.save(path, arrays)
