"""Forecast a few series, then let new rows come in: each one costs the same, however long the past is."""

import time

import numpy as np
import pandas as pd

from aaren.forecasting.estimator import AarenForecaster

HORIZON, KNOWN = 24, 1_000


def power_use(rows: int, *, start: int = 0) -> pd.DataFrame:
    """Three houses with days, weeks and noise, as a long frame."""
    hours = np.arange(start, start + rows)
    noise = np.random.default_rng(start)
    houses = []
    for number, name in enumerate(("attic", "bakery", "cellar")):
        days = np.sin(2 * np.pi * (hours + 5 * number) / 24)
        weeks = 0.5 * np.sin(2 * np.pi * hours / 168)
        values = 10.0**number * (3 + days + weeks + 0.1 * noise.normal(size=rows))
        dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h")
        houses.append(pd.DataFrame({"unique_id": name, "ds": dates, "y": values}))
    return pd.concat(houses, ignore_index=True)


def relative_error(found: pd.Series, truth: pd.DataFrame) -> float:
    scale = truth.groupby("unique_id")["y"].transform("std")
    return float(((found.to_numpy() - truth["y"]).abs() / scale).mean())


def main() -> None:
    model = AarenForecaster(horizon=HORIZON, width=32, num_layers=1, epochs=5, updates_per_epoch=60)
    model.fit(power_use(KNOWN))
    truth = power_use(HORIZON, start=KNOWN)
    forecast = model.predict()
    last = power_use(KNOWN).groupby("unique_id")["y"].last()
    print(forecast.head(3).to_string(index=False))
    print(f"error in standard deviations: forecast {relative_error(forecast['AarenForecaster'], truth):.2f}")
    print(f"                            last value {relative_error(truth['unique_id'].map(last), truth):.2f}")

    known = KNOWN
    for rows in (1, 10, 100, 1_000, 1):  # the last row costs what the first did
        new = power_use(rows, start=known)
        begin = time.perf_counter()
        model.update(new)
        milliseconds = 1e3 * (time.perf_counter() - begin)
        known += rows
        print(f"{rows:5} new hours: {milliseconds:6.1f} ms, {model.state_.nbytes:,} bytes of memory in all")


if __name__ == "__main__":
    main()
