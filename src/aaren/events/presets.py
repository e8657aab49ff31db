"""Ready-made event runs: dataset x model x profile.

paper   the published hyper-parameters: 6,000 epochs at most, weights by validation RMSE, last event censored
cpu     the same with fewer epochs and weights by validation NLL: at most five minutes on one core
smoke   a smoke test of seconds; meant for the generated set `sin`
"""

from typing import Literal, cast

from aaren.datasets.catalogue import DATASETS
from aaren.engine.presets import dataset_name
from aaren.engine.setting import CellGroup
from aaren.events.config import EventNetworkConfig, EventsConfig, ModelName
from aaren.events.references import DISTRIBUTIONS

# cpu: epochs that take about three and a half minutes on one quiet core, validation included, with the
# slower of Aaren and Transformer. A GRU's epoch takes up to five times as long: it gets a quarter of them.
_CPU_EPOCHS = {
    "sin": 140,
    "hawkes": 140,
    "poisson": 140,
    "renewal": 140,
    "mimic": 600,
    "wiki": 9,
    "taxi-tritpp": 800,
    "stackoverflow-partial": 25,
    "mooc-partial": 90,
    "uber-sample": 110,
}
_CPU_EPOCHS_ELSEWHERE = 30
_CLOCKED = ("sin", "taxi", "taxi-tritpp")  # whose sequences all begin at the same time of a clock
_MANY_MARKS = ("wiki",)  # 8,227: docs/events.md
_GRU_SHARE = 4
_CPU_PATIENCE = 40
_SMOKE_SEQUENCES = 60


def preset(
    dataset: str,
    *,
    model: str = "aaren",
    profile: str = "cpu",
    data_file: str = "",
) -> EventsConfig:
    """Return the config of one cell of the table.

    Args:
        dataset: A name of the catalogue, in any spelling of capitals; empty with a data_file.
        model: A `ModelName`.
        profile: paper, cpu or smoke.
        data_file: A CSV, Parquet, EasyTPP JSON or npz file of the user's own.
    """
    name = dataset_name(dataset, "events")
    return EventsConfig(
        dataset=name,
        data_file=data_file,
        model=cast("ModelName", model),
        time_scale=time_scale(name),
        epochs={"paper": 6_000, "cpu": _cpu_epochs(name, model), "smoke": 3}[profile],
        patience=500 if profile == "paper" else _CPU_PATIENCE,
        selection="nll" if profile == "cpu" else "rmse",
        max_sequences=_SMOKE_SEQUENCES if profile == "smoke" else None,
        network=_network(profile, encoding(name)),
    )


def grid(profile: str) -> tuple[CellGroup, ...]:
    """Return the table: the paper's sets, the available parts of them, and a Hawkes process.

    Wiki's thousands of marks are not learned in the few epochs of `cpu`: it is in `paper` alone.
    """
    table = ("aaren", "transformer", "gru", "aaren-decay", *DISTRIBUTIONS)
    if profile == "smoke":
        return (CellGroup(datasets=("sin",), models=table, seedless=DISTRIBUTIONS),)
    left_out = _MANY_MARKS if profile == "cpu" else ()
    datasets = tuple(row.name for row in DATASETS if row.setting == "events" and row.name not in left_out)
    parts = ("stackoverflow-partial", "mooc-partial", "uber-sample", "taxi-tritpp", "hawkes")
    return (CellGroup(datasets=(*datasets, *parts), models=table, seedless=DISTRIBUTIONS),)


def time_scale(dataset: str) -> float | Literal["mean-gap"]:
    """Return the unit of time in which a model counts.

    That of the data where its gaps are near 1. Mean gaps where the data is in seconds: the published errors
    (0.2 to 1.4) show that the published files were not; and for a user's own data, whose unit is unknown.

    >>> time_scale("sin"), time_scale("wiki")
    (1.0, 'mean-gap')
    """
    seconds = ("wiki", "reddit", "mooc", "mooc-partial", "stackoverflow", "stackoverflow-partial")
    return "mean-gap" if not dataset or dataset in seconds else 1.0


def encoding(dataset: str) -> Literal["gaps", "times"]:
    """Return what the sines and cosines are of: times since the start, or gaps.

    The validation likelihood decided, set by set (docs/events.md). Gaps for a user's own data, whose streams
    may continue past every time that was seen in training.

    >>> encoding("sin"), encoding("mimic"), encoding("")
    ('times', 'gaps', 'gaps')
    """
    return "times" if dataset in _CLOCKED else "gaps"


def _network(profile: str, encoding: Literal["gaps", "times"]) -> EventNetworkConfig:
    if profile == "smoke":
        return EventNetworkConfig(width=16, ff_width=16, encoding=encoding)
    return EventNetworkConfig(encoding=encoding)


def _cpu_epochs(dataset: str, model: str) -> int:
    epochs = _CPU_EPOCHS.get(dataset, _CPU_EPOCHS_ELSEWHERE)
    return max(1, epochs // _GRU_SHARE) if model == "gru" else epochs
