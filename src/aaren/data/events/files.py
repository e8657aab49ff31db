"""Event sequences in a file, whatever its format; and our own flat `.npz` layout.

Arrays of the layout: `times` float64 and `offsets` int (both required), `marks` int from 0, `split` int per
sequence (0 train, 1 validation, 2 test), a scalar `t_max` (observed over [0, t_max]) or `observed_from` and
`observed_until` per sequence, `num_marks`, `mark_names`, `unit`. Knows nothing of registered datasets.
"""

from pathlib import Path

import numpy as np

from aaren.data.events import records as event_records
from aaren.data.events import table as event_table
from aaren.data.events.grouping import Repairs
from aaren.data.events.sequences import EventSequences
from aaren.data.events.table import Columns
from aaren.data.files import npz
from aaren.data.files.packed import refuse_pickle
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
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
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
    marks = arrays["marks"].astype(np.int64) if "marks" in arrays else None
    counted = 1 if marks is None or not len(marks) else int(marks.max()) + 1
    count = len(arrays["offsets"]) - 1
    begin, end = arrays.get("observed_from"), arrays.get("observed_until")
    if "t_max" in arrays:
        begin, end = np.zeros(count), np.full(count, arrays["t_max"].item())
    return EventSequences(
        times=arrays["times"].astype(np.float64),
        offsets=arrays["offsets"].astype(np.int64),
        marks=marks,
        num_marks=int(arrays["num_marks"].item()) if "num_marks" in arrays else counted,
        mark_names=tuple(arrays["mark_names"].tolist()) if "mark_names" in arrays else (),
        unit=unit or (str(arrays["unit"].item()) if "unit" in arrays else "time units"),
        observed_from=None if begin is None else begin.astype(np.float64),
        observed_until=None if end is None else end.astype(np.float64),
        split=arrays["split"].astype(np.int64) if "split" in arrays else None,
        name=name or str(path),
    )


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
