"""Forecast a few series with intervals, beside the seasonal naive; then let new rows come in one by one."""

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


def relative_error(found: np.ndarray, truth: pd.DataFrame) -> float:
    scale = truth.groupby("unique_id")["y"].transform("std")
    return float(((found - truth["y"]).abs() / scale).mean())


def main() -> None:
    model = AarenForecaster(horizon=HORIZON)
    known, truth = power_use(KNOWN), power_use(HORIZON, start=KNOWN)
    model.fit(known)
    print(model.table())
    forecast = model.predict(levels=[80])
    print(forecast.head(3).to_string(index=False))
    yesterday = known.groupby("unique_id")["y"].apply(lambda y: y.iloc[-HORIZON:]).to_numpy()
    bounds = (forecast[f"AarenForecaster-{side}-80"] for side in ("lo", "hi"))
    inside = truth["y"].between(*bounds).mean()
    print("error in standard deviations of the day after:")
    print(f"    forecast {relative_error(forecast['AarenForecaster'].to_numpy(), truth):.2f}")
    print(f"    seasonal naive {relative_error(yesterday, truth):.2f}")
    print(f"    {100 * inside:.0f} % of it inside the 80 % intervals")

    for hour in range(KNOWN, KNOWN + 200):  # the last row costs what the first did
        row = power_use(1, start=hour)
        begin = time.perf_counter()
        model.push(row["y"].to_numpy(), when=row["ds"].iloc[0])
        if hour in (KNOWN, KNOWN + 199):
            took = 1e3 * (time.perf_counter() - begin)
            print(f"hour {hour}: {took:.1f} ms, {model.state_.nbytes:,} bytes of memory in all")


if __name__ == "__main__":
    main()
