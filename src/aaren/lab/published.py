"""The paper's 214 published cells, under our names and in our units.

`published.csv` holds what the paper prints (two models a row, percent where it prints percent). This module
is the one place that knows how its names translate to those of `aaren.datasets.catalogue` and of the tasks.
Our own runs are never mixed in.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

SETTINGS = MappingProxyType(
    {
        "reinforcement learning": "rl",
        "event forecasting": "events",
        "time series forecasting": "forecasting",
        "time series classification": "classification",
    }
)
# The paper's word -> ours, and what its number is multiplied by to be ours: accuracies are fractions here.
METRICS = MappingProxyType(
    {
        "D4RL score": ("score", 1.0),
        "NLL": ("nll", 1.0),
        "RMSE": ("rmse", 1.0),
        "Acc": ("accuracy", 0.01),
        "MSE": ("mse", 1.0),
        "MAE": ("mae", 1.0),
    }
)
MODELS = ("aaren", "transformer")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedCell:
    """One number of the paper: its place, under our names, its mean and standard deviation in our units."""

    setting: str
    dataset: str
    horizon: int | None
    metric: str
    model: str
    mean: float
    std: float


def cells() -> list[PublishedCell]:
    """Return all 214 cells, in the order of the paper's tables.

    >>> len(cells())
    214
    """
    return list(_by_place().values())


def lookup(setting: str, dataset: str, horizon: int | None, metric: str, model: str) -> PublishedCell | None:
    """Find the published number of a place in a table; None where the paper has none.

    Args:
        setting: Its name, such as events.
        dataset: A name of the registry; parts of a dataset and regenerated ones were not published.
        horizon: Rows to forecast; None where a setting has no horizons.
        metric: Its name, bare (`mse`) or as in a record's `reports` (`test.mse`).
        model: `aaren` or `transformer`.

    >>> lookup("classification", "JapaneseVowels", None, "test.accuracy", "aaren").mean
    0.9665
    >>> lookup("forecasting", "traffic-20", 96, "mse", "aaren") is None
    True
    """
    return _by_place().get((setting, dataset, horizon, metric.rpartition(".")[2], model))


def registry_name(setting: str, name: str) -> str:
    """Translate the paper's name of a dataset into the registry's.

    >>> registry_name("rl", "Walker-Medium-Replay"), registry_name("events", "MIMIC")
    ('walker2d-medium-replay', 'mimic')
    """
    if setting == "rl":
        return name.lower().replace("walker-", "walker2d-")
    return name.lower() if setting == "events" else name


@cache
def _by_place() -> dict[tuple[str, str, int | None, str, str], PublishedCell]:
    text = resources.files("aaren.lab").joinpath("published.csv").read_text(encoding="utf-8")
    found = {}
    for row in csv.DictReader(text.splitlines()):
        setting = SETTINGS[row["table"]]
        metric, unit = METRICS[row["metric"]]
        for model in MODELS:
            cell = PublishedCell(
                setting=setting,
                dataset=registry_name(setting, row["dataset"]),
                horizon=int(row["horizon"]) if row["horizon"] else None,
                metric=metric,
                model=model,
                mean=round(float(row[model]) * unit, 6),
                std=round(float(row[f"{model}_std"]) * unit, 6),
            )
            found[cell.setting, cell.dataset, cell.horizon, cell.metric, cell.model] = cell
    return found
