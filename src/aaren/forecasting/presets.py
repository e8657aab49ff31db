"""Ready-made forecasting runs: dataset x horizon x model x profile.

paper   the published hyper-parameters, exactly
cpu     the same protocol, a narrower model, shorter epochs and evaluations: at most eight minutes on a core
smoke   a smoke test of seconds; meant for the generated set `seasonal`
"""

from pathlib import Path
from typing import cast

import numpy as np

from aaren.datasets.catalogue import DATASETS
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.presets import dataset_name
from aaren.engine.setting import CellGroup
from aaren.errors import ConfigError
from aaren.forecasting.config import ForecastingConfig, ModelName, NetworkConfig, StreamingConfig
from aaren.forecasting.data import HORIZONS, read_series

# The published scripts end these runs earlier than after ten epochs; a horizon of 0 means all.
_EPOCHS = {("Weather", 96): 3, ("Exchange", 336): 1, ("Traffic", 0): 3}
_DAY_SECONDS = 86_400

# cpu: at most so many updates per epoch, by horizon: ten epochs of the slower model (the Transformer, whose
# step costs 0.18, 0.26, 0.43 and 1.0 s on a core), ten evaluations and the test part fit into eight minutes.
# Such an epoch is a tenth of what can be afforded and no pass over the data, so the published scripts that
# end after one or three passes do not shorten it, and the rate falls with updates, alike at every horizon.
_CPU_UPDATES = {96: 200, 192: 150, 336: 80, 720: 32}
_CPU_EPOCHS = 10
_CPU_HALVE_EVERY = 200
# cpu: a model of an eighth of the width wants a higher rate; at 1e-4 it is far from done after these updates.
_NARROW_RATE = 5e-4


def preset(
    dataset: str,
    *,
    model: str = "aaren",
    profile: str = "cpu",
    data_file: str = "",
    horizon: int = 96,
) -> ForecastingConfig:
    """Return the config of one cell of the table.

    Args:
        dataset: A name of the catalogue, in any spelling of capitals; empty with a data_file.
        model: A `ModelName`.
        profile: paper, cpu or smoke.
        data_file: A CSV file of the user's own.
        horizon: Rows to forecast; the paper's are 96, 192, 336 and 720.
    """
    if horizon < 1:
        raise ConfigError(f"horizon must be at least 1; got {horizon}.")
    name = dataset_name(dataset, "forecasting")
    return ForecastingConfig(
        dataset=name,
        data_file=data_file,
        model=cast("ModelName", model),
        horizon=horizon,
        season_steps=season_steps(name, data_file),
        network=_network(profile),
        streaming=_streaming(model, profile),
        optimiser=OptimiserConfig(learning_rate=1e-4 if profile == "paper" else _NARROW_RATE),
        batch_size=8 if model == "streaming-carried" else 32,
        epochs={"paper": published_epochs(name, horizon), "cpu": _CPU_EPOCHS, "smoke": 2}[profile],
        updates_per_epoch=_updates(profile, horizon, model),
        halve_every=_CPU_HALVE_EVERY if profile == "cpu" else None,
        validation_windows={"paper": None, "cpu": 512, "smoke": 64}[profile],
        last_batch="keep" if data_file else "protocol",  # the quirk belongs to the published sets
    )


def grid(profile: str) -> tuple[CellGroup, ...]:
    """Return the table: the paper's two models and references, then streaming and longer linear models."""
    naive, streaming = ("naive-last", "naive-seasonal"), ("streaming", "streaming-carried")
    seedless = (*naive, "linear")  # least squares in closed form
    table = ("aaren", "transformer", *seedless)
    if profile == "smoke":
        return (CellGroup(datasets=("seasonal",), models=table, seedless=seedless),)
    datasets = (*(row.name for row in DATASETS if row.setting == "forecasting"), "traffic-20")
    horizons = tuple((f"horizon={horizon}",) for horizon in HORIZONS)
    return (
        CellGroup(datasets=datasets, models=table, choices=horizons, seedless=seedless),
        CellGroup(datasets=datasets, models=streaming, choices=horizons),
        CellGroup(
            datasets=datasets,
            models=("linear-336", "lagged-base"),
            choices=horizons,
            seedless=("linear-336", "lagged-base"),
        ),
    )


def published_epochs(dataset: str, horizon: int) -> int:
    """Return how many epochs the published script of this cell runs at most.

    >>> published_epochs("Weather", 96), published_epochs("Weather", 192), published_epochs("Traffic", 720)
    (3, 10, 3)
    """
    return _EPOCHS.get((dataset, horizon), _EPOCHS.get((dataset, 0), 10))


def season_steps(dataset: str, data_file: str = "") -> int:
    """Return the rows of a day; of a week where there is one row a day, of a year where there is one a month.

    >>> [season_steps(name) for name in ("ETTh1", "ETTm2", "Weather", "Exchange")]
    [24, 96, 144, 7]
    """
    known = {"ETTm1": 96, "ETTm2": 96, "Weather": 144, "Exchange": 7}
    if not data_file:
        return known.get(dataset, 24)
    gaps = np.diff(read_series(Path(data_file), allow_irregular=True).dates).astype(np.int64)
    usual = int(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 3600
    if usual < _DAY_SECONDS:
        return max(2, round(_DAY_SECONDS / usual))
    return 7 if usual < 5 * _DAY_SECONDS else 12


def _network(profile: str) -> NetworkConfig:
    if profile == "paper":
        return NetworkConfig()
    if profile == "cpu":
        return NetworkConfig(width=64, num_heads=4, ff_width=256)
    return NetworkConfig(width=16, num_heads=2, ff_width=32)


def _streaming(model: str, profile: str) -> StreamingConfig:
    if model != "streaming-carried":
        return StreamingConfig()
    steps, targets = (160, 4) if profile == "smoke" else (1024, 16)
    return StreamingConfig(decay="learned", train_steps=steps, num_targets=targets, judged="carried")


def _updates(profile: str, horizon: int, model: str) -> int | None:
    if profile == "paper":
        return None
    if profile == "smoke":
        return 10
    if model.startswith("streaming"):  # whose step costs the same at every horizon, 0.04 to 0.12 s
        return _CPU_UPDATES[96]
    return next((_CPU_UPDATES[longest] for longest in HORIZONS if horizon <= longest), _CPU_UPDATES[720])
