"""A forecaster from a raw row, and the time of its date, to forecasts with intervals."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from aaren.export.whole import WholeStep
from aaren.nn.checks import largest
from aaren.stream.raw import civil_date

if TYPE_CHECKING:
    from aaren.forecasting.bank_forecaster import BankForecaster, BankState
    from aaren.forecasting.lagged import LagForecaster, LagState

LEVELS = (80, 95)  # of the intervals, in percent


def forecast_step(
    model: "LagForecaster | BankForecaster",
    *,
    state: "LagState | BankState | None" = None,
    columns: Sequence[str] = (),
) -> WholeStep:
    """Return the step of a forecaster.

    Args:
        model: fitted.
        state: where streams begin, such as after the training rows; default: before the first row.
        columns: names of the series.
    """
    config, stepped = model.config, cast("Any", model.fold())  # either kind, with its own state
    sides = [0.5 + side * level / 200.0 for side in (-1.0, 1.0) for level in LEVELS]
    probabilities = torch.tensor(sides, dtype=torch.float64)
    inputs = {"row": torch.zeros(1, config.num_series, dtype=torch.float64)}
    if config.clock != "none":
        inputs["time"] = torch.zeros(1, dtype=torch.float64)
    if config.num_covariates:
        inputs["covariates"] = torch.zeros(1, config.num_covariates, dtype=torch.float64)
        inputs["future_covariates"] = torch.zeros(
            1, config.horizon_steps, config.num_covariates, dtype=torch.float64
        )

    def run(given: list[Tensor], held: Any) -> tuple[list[Tensor], Any]:
        named = dict(zip(inputs, given, strict=True))
        slot = find_slot(named["time"], config.clock, config.slot_seconds) if "time" in named else None
        forecast, held = stepped.step(named["row"], held, slot=slot, covariates=named.get("covariates"))
        if "future_covariates" in named:
            forecast = stepped.predict(held, covariates=named["future_covariates"])
        bounds = stepped.quantiles_of(forecast, held, probabilities)
        return [forecast, *bounds.unbind(-1)], held

    names = [f"{side}_{level}" for side in ("lower", "upper") for level in LEVELS]
    notes = {
        "row": "one value per series, in the units of the training data",
        "time": "seconds since 1970-01-01 of the row's date, by the clocks of the training data"
        + (f" ({config.time_zone})" if config.time_zone else ""),
        "covariates": "what is known of the row besides",
        "future_covariates": "horizon steps by covariates: the same of the rows to come",
        "forecast": "horizon steps by series, in the units of the training data",
        **{name: f"bound of the {name[-2:]} % interval of the forecast" for name in names},
    }
    return WholeStep(
        inputs=inputs,
        outputs=("forecast", *names),
        run=run,
        state=model.init_state(1) if state is None else state,
        largest=largest(torch.float64),
        fingerprint=model.fingerprint(),
        names={"row": [str(name) for name in columns]} if columns else {},
        notes={name: note for name, note in notes.items() if name in inputs or name not in _OPTIONAL},
    )


_OPTIONAL = ("time", "covariates", "future_covariates")


def find_slot(seconds: Tensor, clock: str, slot_seconds: int) -> Tensor:
    """Return the slot of times (b,) int64, as `aaren.forecasting.calendar.find_slots`.

    >>> find_slot(torch.tensor([1514764800.0 + 7200.0], dtype=torch.float64), "week", 3600)  # Monday, 2:00
    tensor([2])
    """
    date = civil_date(seconds)
    if clock in ("month", "quarter"):
        return date.month.long() if clock == "month" else (date.month / 3.0).floor().long()
    if clock == "weekday":
        return date.weekday.long()
    return (date.weekday * (86_400 // slot_seconds) + (date.second / slot_seconds).floor()).long()
