"""Judge intervals: how much of the truth lies inside, and the CRPS of their quantiles."""

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.forecasting.fitting import History
from aaren.forecasting.lagged import PROBABILITIES, LagForecaster
from aaren.forecasting.residuals import mean_crps

MOST_ORIGINS = 1500  # at which intervals are looked at, about
LEVELS = {80: (0.1, 0.9), 95: (0.025, 0.975)}
Numbers = NDArray[np.float64]


def judge_quantiles(found: Numbers, truth: Numbers) -> dict[str, float]:
    """Return coverage and CRPS of quantiles (..., PROBABILITIES) of the truth (...).

    >>> certain = np.zeros((4, len(PROBABILITIES)))
    >>> judge_quantiles(certain, np.zeros(4))
    {'coverage_80': 1.0, 'coverage_95': 1.0, 'crps': 0.0}
    """
    scores = {}
    for level, sides in LEVELS.items():
        low, high = (found[..., PROBABILITIES.index(side)] for side in sides)
        scores[f"coverage_{level}"] = float(((truth >= low) & (truth <= high)).mean())
    return {**scores, "crps": mean_crps(found, truth)}


def visited_origins(first: int, end: int, horizon_steps: int) -> NDArray[np.int64]:
    """Return origins from `first` on, evenly spaced, whose horizons end before `end`."""
    stop = end - horizon_steps
    return np.arange(first, stop, max(1, (stop - first) // MOST_ORIGINS))


@torch.no_grad()
def judge_intervals(
    model: LagForecaster, history: History, *, begin: int, first: int, end: int
) -> dict[str, float]:
    """Judge the intervals of one stream, at the tracked steps of the horizon, in scaled units.

    Args:
        model: fitted.
        history: a table of rows, which all series share.
        begin: the row that the stream begins with, at least a window before the first forecast.
        first: the last known row of the first forecast that is judged.
        end: of the rows.
    """
    steps = np.array(model.config.tracked_steps)
    values, slots = np.stack(history.series, axis=1), history.slots[0]
    along = model.along(
        torch.from_numpy(values[begin:end])[None],
        model.init_state(1),
        slots=torch.from_numpy(slots[begin:end])[None],
    )
    origins = visited_origins(first, end, model.config.horizon_steps)
    probabilities, parts = torch.tensor(PROBABILITIES, dtype=torch.float64), []
    for some in torch.split(torch.from_numpy(origins - begin), 128):
        lags = along.lags[0, :, some].transpose(0, 1)  # (n, s, p)
        said = model.forecast_lags(lags)[..., steps - 1]
        bands = model.bands(along.log_scale[0, some], probabilities)  # (n, s, tracked, q)
        parts.append(said.unsqueeze(-1) + model.spread(lags)[..., None, None] * bands)
    found = torch.cat(parts).transpose(1, 2).numpy()  # (n, tracked, s, q)
    found = found + model.profile.numpy()[slots[origins[:, None] + steps]][..., None]
    truth = (values[origins[:, None] + steps] - model.mean.numpy()) / model.deviation.numpy()
    return judge_quantiles(found, truth)
