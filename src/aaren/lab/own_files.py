"""Look at a user's own file the way training would, before training does.

Guesses the setting from the file's name where that is safe. Knows the four readers and nothing of the
registry.

Write a generated set into the data folder, for use outside this library or with another seed.

Inside the library generated sets need no file.
"""

from pathlib import Path
from typing import Literal

import numpy as np

from aaren.datasets.catalogue import EXTRAS, lookup
from aaren.datasets.dataset import SETTINGS, Fact
from aaren.datasets.verify import Finding
from aaren.errors import ConfigError, DataError, unknown_name
from aaren.files import folders
from aaren.files.archive import plain_name, refuse_pickle
from aaren.files.atomic import replacing
from aaren.forecasting.series import Series, seasonal

_SUFFIXES = {
    ".csv": "forecasting",
    ".ts": "classification",
    ".parquet": "events",
    ".json": "events",
    ".jsonl": "events",
    ".hdf5": "rl",
    ".h5": "rl",
}


def check_file(path: Path, *, setting: str = "", allow_irregular: bool = False) -> Finding:
    """Read a file (or a folder of `.ts` files) strictly and report what is in it; a fault raises."""
    is_guessed, setting = not setting, setting or guess_setting(path)
    if setting not in SETTINGS:
        raise unknown_name("setting", setting, SETTINGS)
    if path.is_file():
        refuse_pickle(path)
    try:
        measured = _READERS[setting](path, allow_irregular)
    except DataError as error:
        if is_guessed and setting == "forecasting":  # a CSV may be either
            raise DataError(f"{error} If it is a table of events, add --as events.") from error
        raise
    return Finding(name=str(path), status="verified", measured=measured)


def guess_setting(path: Path) -> str:
    """Tell a file's setting from its name.

    >>> guess_setting(Path("load.csv.gz")), guess_setting(Path("gestures_TRAIN.ts"))
    ('forecasting', 'classification')
    """
    if path.is_dir():
        return "classification"
    found = _SUFFIXES.get(Path(plain_name(path)).suffix)
    if found is None:
        raise ConfigError(
            f"cannot tell what {path.name} is: add --as forecasting, classification, events or rl."
        )
    return found


def _forecasting(path: Path, allow_irregular: bool) -> dict[str, Fact]:
    from aaren.forecasting.series import read_series

    series = read_series(path, allow_irregular=allow_irregular)
    return {
        "rows": len(series),
        "series": len(series.columns),
        "first": str(series.dates[0]),
        "last": str(series.dates[-1]),
        **series.irregular,
    }


def _classification(path: Path, allow_irregular: bool) -> dict[str, Fact]:
    from aaren.classification.data import find_test_part, open_files, require_series, require_trainable
    from aaren.classification.ts import read_ts

    train = _training_file(path) if path.is_dir() else path
    test = find_test_part(train)
    irregular: Literal["protocol", "strict"] = "protocol" if allow_irregular else "strict"
    parts = {plain_name(part): read_ts(part) for part in (train, test) if part is not None}
    if "_TEST." in train.name:  # a test part looked at alone: nothing is to be learned from it
        require_series(parts[plain_name(train)], name=plain_name(train), irregular=irregular)
    else:
        require_trainable(parts, irregular=irregular)
    data = open_files(train, test, irregular=irregular)
    measured: dict[str, Fact] = {"train": len(data.train)}
    if data.test is not None:
        measured["test"] = len(data.test)
    _, length, channels = data.train.values.shape
    return {**measured, "channels": channels, "length": length, "classes": len(data.classes)}


def _training_file(folder: Path) -> Path:
    found = sorted(item for item in folder.iterdir() if plain_name(item).endswith("_TRAIN.ts"))
    if len(found) != 1:
        raise DataError(f"{folder}: expected one file NAME_TRAIN.ts (plain, .gz or .xz); found {len(found)}.")
    return found[0]


def _events(path: Path, _allow_irregular: bool) -> dict[str, Fact]:
    from aaren.events.files import read

    try:
        return dict(read(path).counts())
    except DataError as error:
        cure = "Only the usual names are looked for here; training takes others: --set own.time_column=NAME"
        raise DataError(str(error).replace("Name the columns with Columns(...)", cure)) from error


def _rl(path: Path, _allow_irregular: bool) -> dict[str, Fact]:
    from aaren.rl.data import read

    found = read(path)
    return {
        "trajectories": len(found),
        "transitions": found.num_transitions,
        "state_size": found.state_size,
        "action_size": found.action_size,
        "mean_return": round(float(found.returns.mean()), 1),
    }


_READERS = {
    "forecasting": _forecasting,
    "classification": _classification,
    "events": _events,
    "rl": _rl,
}


def make_generated(name: str, *, seed: int = 0) -> Path:
    """Write a generated set and return its file."""
    # The classic-control sets are rolled out in memory only.
    known = [row.name for row in (lookup("sin"), *EXTRAS) if row.is_generated and row.setting != "rl"]
    if name not in known:
        raise unknown_name("generated set", name, ["rl", *known])
    dataset = lookup(name)
    if dataset.setting == "events":
        from aaren import events

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
