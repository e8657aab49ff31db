"""An hourly table with gaps, daylight saving and four columns: against Ridge on 168 lags of all columns."""

import numpy as np
import pandas as pd

from aaren.forecasting.estimator import AarenForecaster

HORIZON, LAGS, TEST_DAYS = 24, 168, 60


def building(days: int = 400) -> pd.DataFrame:
    """Weather, people, heating and power of a house in Berlin, some hours of which nobody wrote down."""
    hours = pd.date_range("2023-06-01", periods=24 * days, freq="h", tz="Europe/Berlin")
    noise, n = np.random.default_rng(0), 24 * days
    slow = np.zeros(n)
    for t in range(1, n):
        slow[t] = 0.97 * slow[t - 1] + noise.normal()
    clock, year = hours.hour.to_numpy(), 2 * np.pi * hours.dayofyear.to_numpy() / 365
    outside = 10 - 9 * np.cos(year) + 3 * np.sin(2 * np.pi * (clock - 9) / 24) + slow
    at_work = (hours.dayofweek.to_numpy() < 5) & (clock >= 8) & (clock < 18)
    people = 40 * at_work + 4 * np.abs(noise.normal(size=n))
    heating = np.maximum(0, 20 - np.r_[outside[:3], outside[:-3]]) * 2 + noise.normal(size=n)
    power = 20 + 0.5 * people + 0.4 * heating + 2 * noise.normal(size=n)
    frame = pd.DataFrame(
        {"ds": hours, "outside": outside, "people": people, "heating": heating, "power": power}
    )
    return frame.drop(index=noise.choice(np.arange(200, n - 24 * TEST_DAYS - 200), 60, replace=False))


def ridge_forecasts(values: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Fit the horizon of all columns to 168 lags of all columns, before the first origin."""
    inputs = lambda rows: np.stack([values[r - LAGS + 1 : r + 1].ravel() for r in rows])  # noqa: E731
    train = np.arange(LAGS, origins[0] - HORIZON)
    targets = np.stack([values[r + 1 : r + 1 + HORIZON].ravel() for r in train])
    x, mean = inputs(train), targets.mean(0)
    centre = x.mean(0)
    x = x - centre
    weights = np.linalg.solve(x.T @ x + 10.0 * np.eye(x.shape[1]), x.T @ (targets - mean))
    return ((inputs(origins) - centre) @ weights + mean).reshape(len(origins), HORIZON, -1)


def main() -> None:
    frame, windows = building(), TEST_DAYS
    model = AarenForecaster(horizon=HORIZON, fill="interpolate")
    found = model.cross_validation(frame, n_windows=windows)
    whole = frame.set_index("ds").resample("h").mean().interpolate()
    values = ((whole - whole.mean()) / whole.std()).to_numpy()
    origins = len(values) - 1 - HORIZON * np.arange(windows, 0, -1)
    truth = np.stack([values[r + 1 : r + 1 + HORIZON] for r in origins])
    week = np.stack([values[r + 1 - 168 : r + 1 - 168 + HORIZON] for r in origins])
    scale = found["unique_id"].map(whole.std())
    print(f"{windows} unseen days, error squared in standard deviations:")
    errors = (found["AarenForecaster"] - found["y"]) / scale
    print(f"    AarenForecaster          {(errors**2).mean():.4f}")
    print(f"    Ridge, 168 lags of all   {np.mean((ridge_forecasts(values, origins) - truth) ** 2):.4f}")
    print(f"    week before              {np.mean((week - truth) ** 2):.4f}")


if __name__ == "__main__":
    main()
