"""Write a generated set into the data folder, for use outside this library or with another seed.

Inside the library generated sets need no file.
"""

from pathlib import Path

import numpy as np

from aaren.data.files import folders
from aaren.data.files.atomic import replacing
from aaren.data.forecasting.seasonal import seasonal
from aaren.data.forecasting.series import Series
from aaren.data.registry import EXTRAS, lookup
from aaren.errors import unknown_name


def make_generated(name: str, *, seed: int = 0) -> Path:
    """Write a generated set and return its file."""
    # The classic-control sets are rolled out in memory only.
    known = [row.name for row in (lookup("sin"), *EXTRAS) if row.is_generated and row.setting != "rl"]
    if name not in known:
        raise unknown_name("generated set", name, ["rl", *known])
    dataset = lookup(name)
    if dataset.setting == "events":
        from aaren.data import events

        return events.make(name, seed=seed)
    series = seasonal(rows=int(dataset.facts["rows"]), num_series=int(dataset.facts["series"]), seed=seed)
    return write_series(series, folders.place(dataset.setting, dataset.files[0]))


def write_series(series: Series, target: Path) -> Path:
    """Write a series as a CSV file that reads back exactly."""
    dates = np.char.replace(np.datetime_as_string(series.dates), "T", " ").tolist()
    lines = [",".join(("date", *series.columns))]
    # repr is the shortest text that gives the same number again
    lines += [
        ",".join((date, *map(repr, row))) for date, row in zip(dates, series.values.tolist(), strict=True)
    ]
    with replacing(target) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target
