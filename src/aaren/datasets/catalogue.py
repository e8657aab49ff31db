"""The catalogue: the 38 datasets of the paper and the extras beside them, as `catalogue.toml` describes them.

A 39th dataset is one more entry there and nothing elsewhere. Extras are parts of the 38, sets that stand in
for them, and generated ones: they have names of their own, so that no result on a part is mistaken for one on
the whole.
"""

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from aaren.datasets.dataset import Dataset
from aaren.datasets.settings import installed_settings
from aaren.errors import DataError, unknown_name

NUM_LISTED = 38
_ANT_STATE = 27  # of D4RL's 111 numbers the last 84 are zero; Gymnasium's Ant-v4 leaves them out


def _read_rows() -> Iterator[Dataset]:
    """Read `catalogue.toml`; the stand-ins of D4RL's sets come last."""
    content = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8"))
    stand_ins = []
    for name, row in content["rows"].items():
        digests = row.pop("stand_in_sha256", None)
        dataset = _make_row(name, row, content["kinds"])
        if digests is not None:
            facts: dict[str, Any] = {fact: dataset.facts[fact] for fact in ("state_size", "action_size")}
            if name.startswith("ant-"):
                facts["state_size"] = _ANT_STATE
            row = {"kind": "regen", "stands_for": name, "facts": facts, "sha256": digests}
            row["options"] = dataset.options
            stand_ins.append(_make_row(f"{name}-regen", row, content["kinds"]))
        yield dataset
    yield from stand_ins


def _make_row(name: str, row: Mapping[str, Any], kinds: Mapping[str, Mapping[str, Any]]) -> Dataset:
    """Make a dataset of an entry and of what its kind says."""
    kind = kinds.get(row.get("kind", ""), {})
    values = {**kind, **row, "name": name}
    values |= {field: {**kind.get(field, {}), **row.get(field, {})} for field in ("facts", "options")}
    texts = {"name": name, "snake": name.replace("-", "_"), "stands_for": values.get("stands_for", "")}
    texts["stem"] = values.pop("stem", name)
    values.pop("kind", None)
    for field, value in kind.items():
        if field not in row and isinstance(value, str):
            values[field] = value.format(**texts)
        elif field not in row and isinstance(value, list):
            values[field] = [text.format(**texts) for text in value]
    values["sha256"] = dict(zip(values["files"], values.get("sha256", ()), strict=False))
    lists = ("files", "urls", "uncertain")
    return Dataset(**{**values, **{field: tuple(values[field]) for field in lists if field in values}})


_ROWS = tuple(_read_rows())
DATASETS: tuple[Dataset, ...] = _ROWS[:NUM_LISTED]
EXTRAS: tuple[Dataset, ...] = _ROWS[NUM_LISTED:]


def lookup(name: str) -> Dataset:
    """Find a dataset or an extra by its name, in any spelling of capitals.

    >>> lookup("ettm1").facts["rows"]
    69680
    """
    known = {row.name.lower(): row for row in (*DATASETS, *EXTRAS)}
    if name.lower() not in known:  # settings of other packages are loaded only when they are needed
        known = {row.name.lower(): row for row in installed_datasets()} | known
    row = known.get(name.lower())
    if row is None and ("/" in name or Path(name).suffix):
        raise DataError(
            f"no file {name}. A file of yours goes with --data, datasets by name: aaren data list."
        )
    if row is None:
        raise unknown_name("dataset", name, (known_row.name for known_row in known.values()))
    return row


def select(names: tuple[str, ...]) -> tuple[Dataset, ...]:
    """Turn names of datasets and settings into rows; no name at all means the 38 and those of other packages.

    >>> [row.name for row in select(("ETTh1", "sin"))]
    ['ETTh1', 'sin']
    """
    listed = (*DATASETS, *installed_datasets())
    settings = {row.setting for row in listed}
    rows: dict[str, Dataset] = {} if names else {row.name: row for row in listed}
    for name in names:
        group = [row for row in listed if row.setting == name] if name in settings else [lookup(name)]
        rows.update((row.name, row) for row in group)
    return tuple(rows.values())


def installed_datasets() -> tuple[Dataset, ...]:
    """Return the rows that settings of other packages bring."""
    return tuple(row for setting in installed_settings().values() for row in setting.datasets)
