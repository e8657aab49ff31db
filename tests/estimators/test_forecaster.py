from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aaren.errors import ConfigError, DataError
from aaren.estimators import AarenForecaster, panel_streams

TINY: dict[str, Any] = {"width": 16, "num_heads": 2, "num_layers": 1, "epochs": 1, "updates_per_epoch": 5}


def long_frame(
    rows: int = 300, *, start: int = 0, names: tuple[str, ...] = ("north", "south")
) -> pd.DataFrame:
    """Days of 24 hours at two very different scales."""
    hours = np.arange(start, start + rows)
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h")
    parts = [
        pd.DataFrame(
            {
                "unique_id": name,
                "ds": dates,
                "y": 10.0 ** (3 * place) * (5 + np.sin(2 * np.pi * (hours + 6 * place) / 24)),
            }
        )
        for place, name in enumerate(names)
    ]
    return pd.concat(parts, ignore_index=True)


def wide_frame(rows: int = 300, *, start: int = 0) -> pd.DataFrame:
    return long_frame(rows, start=start).pivot(index="ds", columns="unique_id", values="y").reset_index()


@pytest.fixture(scope="module")
def fitted() -> AarenForecaster:
    return AarenForecaster(horizon=12, **TINY).fit(long_frame())


def test_a_long_frame_in_a_long_frame_out(fitted: AarenForecaster) -> None:
    forecast = fitted.predict()
    assert list(forecast.columns) == ["unique_id", "ds", "AarenForecaster"]
    assert forecast["unique_id"].tolist() == ["north"] * 12 + ["south"] * 12
    assert forecast["ds"].iloc[0] == pd.Timestamp("2024-01-13 12:00")
    assert forecast["ds"].iloc[11] == pd.Timestamp("2024-01-13 23:00")
    assert forecast["AarenForecaster"].between(3, 7).sum() == 12  # north; south is a thousand times larger


def test_it_learns_a_season() -> None:
    model = AarenForecaster(
        horizon=12, width=32, num_heads=4, num_layers=1, epochs=4, updates_per_epoch=60, learning_rate=3e-3
    ).fit(long_frame(600))
    truth = long_frame(12, start=600)
    error = (model.predict()["AarenForecaster"] - truth["y"]) * np.repeat([1.0, 1e-3], 12)
    assert error.abs().mean() < 0.25  # a sine of amplitude 1; repeating the last value gives 0.7 and more
    assert model.history_[-1]["mse"] < model.history_[0]["mse"]


def test_a_wide_frame_in_a_wide_frame_out() -> None:
    model = AarenForecaster(horizon=6, **TINY).fit(wide_frame())
    forecast = model.predict()
    assert list(forecast.columns) == ["ds", "north", "south"]
    assert len(forecast) == 6
    model.update(wide_frame(3, start=300))
    assert model.predict()["ds"].iloc[0] == forecast["ds"].iloc[3]
    indexed = AarenForecaster(horizon=6, **TINY).fit(wide_frame().set_index("ds"))
    pd.testing.assert_frame_equal(indexed.predict(), forecast)


def test_long_and_wide_say_the_same(fitted: AarenForecaster) -> None:
    wide = AarenForecaster(horizon=12, **TINY).fit(wide_frame()).predict()
    long = fitted.predict()
    for name in ("north", "south"):
        np.testing.assert_array_equal(
            wide[name].to_numpy(), long.loc[long["unique_id"] == name, "AarenForecaster"].to_numpy()
        )


def test_updating_row_by_row_equals_updating_at_once() -> None:
    one, other = (AarenForecaster(horizon=4, **TINY).fit(long_frame()) for _ in range(2))
    pd.testing.assert_frame_equal(one.predict(), other.predict())  # the same seed, the same model
    new = long_frame(5, start=300)
    one.update(new)
    for hour in sorted(new["ds"].unique()):
        other.update(new[new["ds"] == hour])
    pd.testing.assert_frame_equal(one.predict(), other.predict(), rtol=1e-5)


def test_series_without_new_rows_stay_as_they_are() -> None:
    model = AarenForecaster(horizon=4, **TINY).fit(long_frame())
    before = model.predict()
    new = long_frame(3, start=300)
    model.update(new[new["unique_id"] == "south"])
    after = model.predict()
    is_north = before["unique_id"] == "north"
    pd.testing.assert_frame_equal(before[is_north], after[is_north])
    assert not np.allclose(
        before["AarenForecaster"][~is_north], after["AarenForecaster"][~is_north], rtol=1e-6
    )


def test_an_update_looks_at_the_new_rows_only(
    fitted: AarenForecaster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = AarenForecaster.load(fitted.save(tmp_path))
    seen: list[int] = []
    forward = model.model_.forward

    def counted(rows: torch.Tensor, *given: Any, **named: Any) -> Any:
        seen.append(rows.shape[0] * rows.shape[1])
        return forward(rows, *given, **named)

    monkeypatch.setattr(model.model_, "forward", counted)
    size = model.state_.nbytes
    model.update(long_frame(7, start=300))
    assert seen == [14]
    north, south = long_frame(40, start=307, names=("north",)), long_frame(2, start=307).iloc[2:]
    model.update(pd.concat([north, south]))
    assert sum(seen[1:]) == 42  # the long and the short one are not padded to one length
    model.predict()
    assert len(seen) == 3
    assert model.state_.nbytes == size


def test_saved_and_loaded_it_goes_on(fitted: AarenForecaster, tmp_path: Path) -> None:
    again = AarenForecaster.load(fitted.save(tmp_path / "saved"))
    pd.testing.assert_frame_equal(again.predict(), fitted.predict())
    assert again.get_params() == fitted.get_params()
    copy = AarenForecaster.load(tmp_path / "saved").update(long_frame(2, start=300))
    pd.testing.assert_frame_equal(copy.predict(), again.update(long_frame(2, start=300)).predict())
    with pytest.raises(DataError, match=r"no saved AarenForecaster in .*estimator.json is missing"):
        AarenForecaster.load(tmp_path)
    description = tmp_path / "saved" / "estimator.json"
    description.write_text(description.read_text().replace('"format_version": 1', '"format_version": 2', 1))
    with pytest.raises(DataError, match=r"format version 2; this aaren reads up to 1.*Upgrade"):
        AarenForecaster.load(tmp_path / "saved")


def test_names_whole_numbers_and_unequal_lengths() -> None:
    frame = pd.concat([long_frame(200, names=("a",)), long_frame(40, start=160, names=("b",))])
    frame["step"] = (frame["ds"] - pd.Timestamp("2024-01-01")) // pd.Timedelta(hours=1)
    frame = frame.rename(columns={"unique_id": "shop", "y": "sales"}).drop(columns="ds")
    model = AarenForecaster(
        horizon=10, id_column="shop", time_column="step", target_column="sales", **TINY
    ).fit(frame)
    forecast = model.predict()
    assert list(forecast.columns) == ["shop", "step", "AarenForecaster"]
    assert forecast["step"].tolist() == [*range(200, 210)] * 2
    assert model.model_.config.num_marks == 0


def test_settings_can_be_read_and_changed() -> None:
    model = AarenForecaster(horizon=12, width=16)
    assert model.get_params()["width"] == 16
    assert model.set_params(width=32).get_params()["width"] == 32
    assert repr(model) == "AarenForecaster(horizon=12, width=32)"
    with pytest.raises(ConfigError, match="unknown setting 'widht'; did you mean 'width'"):
        model.set_params(widht=3)
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        AarenForecaster(horizon=12, width=10, num_heads=4)
    with pytest.raises(ConfigError, match=r"horizon must be a whole number of rows; got 1.5"):
        AarenForecaster(horizon=1.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not fitted yet"):
        AarenForecaster(horizon=12).predict()


def test_a_constant_series_is_forecast_as_it_is() -> None:
    frame = long_frame()
    frame["y"] = 7.0
    forecast = AarenForecaster(horizon=4, **TINY).fit(frame).predict()["AarenForecaster"]
    assert (forecast - 7.0).abs().max() < 0.05


def broken(**changes: object) -> pd.DataFrame:
    frame = long_frame()
    for name, value in changes.items():
        frame.loc[41, name] = value
    return frame


def test_bad_frames_are_named() -> None:
    model = AarenForecaster(horizon=12, **TINY)
    for value in (np.nan, np.inf):
        with pytest.raises(
            DataError, match=r"series 'north', row 41 \(ds = 2024-01-02 17:00:00\): expected a finite number"
        ):
            model.fit(broken(y=value))
    with pytest.raises(DataError, match=r"series 'north' has 1 gap\(s\), the first from 2024-01-02T16:00:00"):
        model.fit(long_frame().drop(index=41))
    AarenForecaster(horizon=12, allow_irregular=True, **TINY).fit(long_frame().drop(index=41))
    with pytest.raises(DataError, match=r"series 'north': ds = 2024-01-01T00:00:00 comes twice"):
        model.fit(broken(ds=pd.Timestamp("2024-01-01")))
    with pytest.raises(
        DataError, match=r"no series is long enough for a horizon of 200: .*has 300 rows and needs 408"
    ):
        AarenForecaster(horizon=200, **TINY).fit(long_frame())
    with pytest.raises(DataError, match=r"no column 'ds' and no DatetimeIndex.*time_column="):
        model.fit(long_frame().rename(columns={"ds": "when"}))
    with pytest.raises(DataError, match=r"no column 'y'.*target_column="):
        model.fit(long_frame().rename(columns={"y": "z"}))
    with pytest.raises(DataError, match="ds must be a date or a whole number; got 'soon'"):
        model.fit(long_frame().astype({"ds": str}).replace({"ds": {"2024-01-02 17:00:00": "soon"}}))
    with pytest.raises(DataError, match=r"expected a pandas DataFrame.*got list"):
        model.fit([1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the frame has no rows"):
        model.fit(long_frame().iloc[:0])


def test_bad_updates_are_named(fitted: AarenForecaster) -> None:
    with pytest.raises(
        DataError, match=r"series 'west' was not there when the model was fitted; known are 'north'"
    ):
        fitted.update(long_frame(1, start=300, names=("west",)))
    with pytest.raises(DataError, match=r"2024-01-13T11:00:00 is not after 2024-01-13T11:00:00"):
        fitted.update(long_frame(1, start=299))
    with pytest.raises(DataError, match=r"1 gap\(s\), the first from 2024-01-13T11:00:00"):
        fitted.update(long_frame(1, start=310))
    with pytest.raises(DataError, match="the model was fitted on a long frame"):
        fitted.update(wide_frame(1, start=300))


def test_scales_of_constant_series_are_one() -> None:
    assert panel_streams.find_scale(np.full(5, 3.0)) == (3.0, 1.0)
