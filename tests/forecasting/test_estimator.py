import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aaren.errors import AarenError, ConfigError, DataError
from aaren.files.checksums import read_files, write_files
from aaren.forecasting.estimator import AarenForecaster
from aaren.forecasting.lagged import LagForecaster
from aaren.nn.blocks import state_to_bytes


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
    return AarenForecaster(horizon=12).fit(long_frame())


def test_a_long_frame_in_a_long_frame_out(fitted: AarenForecaster) -> None:
    forecast = fitted.predict()
    assert list(forecast.columns) == ["unique_id", "ds", "AarenForecaster"]
    assert forecast["unique_id"].tolist() == ["north"] * 12 + ["south"] * 12
    assert forecast["ds"].iloc[0] == pd.Timestamp("2024-01-13 12:00")
    assert forecast["ds"].iloc[11] == pd.Timestamp("2024-01-13 23:00")
    assert forecast["AarenForecaster"].between(3, 7).sum() == 12  # north; south is a thousand times larger


def test_it_learns_a_season() -> None:
    model = AarenForecaster(horizon=12).fit(long_frame(600))
    truth = long_frame(12, start=600)
    error = (model.predict()["AarenForecaster"] - truth["y"]) * np.repeat([1.0, 1e-3], 12)
    assert error.abs().mean() < 0.05  # a sine of amplitude 1; repeating the last value gives 0.7 and more


def test_monthly_passengers_are_forecast_better_than_by_the_year_before() -> None:
    """144 months of airline passengers: the last three years, each as it would have been forecast."""
    datasets = pytest.importorskip("aeon.datasets")
    months = pd.period_range("1949-01", periods=144, freq="M")
    known = pd.Series(datasets.load_airline(), index=months, name="passengers")
    found = AarenForecaster(horizon=12).cross_validation(known, n_windows=3)
    year_before = known.to_numpy()[-48:-12]
    ours, naive = (
        float(np.mean(np.abs(said - found["y"]) / found["y"]))
        for said in (found["AarenForecaster"], year_before)
    )
    assert ours < 0.7 * naive  # 4.7 % and 8.1 %


def test_a_wide_frame_in_a_wide_frame_out() -> None:
    model = AarenForecaster(horizon=6).fit(wide_frame())
    forecast = model.predict()
    assert list(forecast.columns) == ["ds", "north", "south"]
    assert len(forecast) == 6
    model.update(wide_frame(3, start=300))
    assert model.predict()["ds"].iloc[0] == forecast["ds"].iloc[3]
    indexed = AarenForecaster(horizon=6).fit(wide_frame().set_index("ds"))
    pd.testing.assert_frame_equal(indexed.predict(), forecast)


def test_long_and_wide_say_the_same(fitted: AarenForecaster) -> None:
    wide = AarenForecaster(horizon=12).fit(wide_frame()).predict()
    long = fitted.predict()
    for name in ("north", "south"):
        np.testing.assert_array_equal(
            wide[name].to_numpy(), long.loc[long["unique_id"] == name, "AarenForecaster"].to_numpy()
        )


def test_updating_row_by_row_equals_updating_at_once() -> None:
    one, other = (AarenForecaster(horizon=4).fit(long_frame()) for _ in range(2))
    pd.testing.assert_frame_equal(one.predict(), other.predict())  # the same seed, the same model
    new = long_frame(5, start=300)
    one.update(new)
    for hour in sorted(new["ds"].unique()):
        other.update(new[new["ds"] == hour])
    pd.testing.assert_frame_equal(one.predict(), other.predict(), rtol=1e-5)


def test_series_without_new_rows_stay_as_they_are() -> None:
    model = AarenForecaster(horizon=4).fit(long_frame())
    before = model.predict()
    new = long_frame(3, start=300)
    model.update(new[new["unique_id"] == "south"])
    after = model.predict()
    is_north = before["unique_id"] == "north"
    pd.testing.assert_frame_equal(before[is_north], after[is_north])
    assert not np.allclose(
        before["AarenForecaster"][~is_north], after["AarenForecaster"][~is_north], rtol=1e-6
    )


def test_memory_does_not_grow(fitted: AarenForecaster, tmp_path: Path) -> None:
    model = AarenForecaster.load(fitted.save(tmp_path))
    size = model.state_.nbytes
    model.update(long_frame(400, start=300))
    north, south = long_frame(40, start=700, names=("north",)), long_frame(2, start=700).iloc[2:]
    model.update(pd.concat([north, south]))
    assert model.state_.nbytes == size
    assert model.state_.num_rows.tolist() == [[740, 702]]
    assert all(len(rows.values) <= 336 for rows in model.recent_.values())


def test_saved_and_loaded_it_goes_on(fitted: AarenForecaster, tmp_path: Path) -> None:
    again = AarenForecaster.load(fitted.save(tmp_path / "saved"))
    pd.testing.assert_frame_equal(again.predict(), fitted.predict())
    assert again.get_params() == fitted.get_params()
    other = AarenForecaster.load(tmp_path / "saved").update(long_frame(2, start=300))
    pd.testing.assert_frame_equal(other.predict(), again.update(long_frame(2, start=300)).predict())
    with pytest.raises(DataError, match=r"no saved AarenForecaster in .*estimator.json is missing"):
        AarenForecaster.load(tmp_path)
    text = (tmp_path / "saved" / "estimator.json").read_text()
    rewrite(tmp_path / "saved", text.replace('"format_version": 1', '"format_version": 9', 1))
    with pytest.raises(DataError, match=r"format version 9; this aaren reads 1.*Upgrade"):
        AarenForecaster.load(tmp_path / "saved")


def test_names_whole_numbers_and_unequal_lengths() -> None:
    frame = pd.concat([long_frame(200, names=("a",)), long_frame(40, start=160, names=("b",))])
    frame["step"] = (frame["ds"] - pd.Timestamp("2024-01-01")) // pd.Timedelta(hours=1)
    frame = frame.rename(columns={"unique_id": "shop", "y": "sales"}).drop(columns="ds")
    model = AarenForecaster(horizon=10, id_column="shop", time_column="step", target_column="sales").fit(
        frame
    )
    forecast = model.predict()
    assert list(forecast.columns) == ["shop", "step", "AarenForecaster"]
    assert forecast["step"].tolist() == [*range(200, 210)] * 2
    assert model.model_.config.clock == "none"


def test_settings_can_be_read_and_changed() -> None:
    model = AarenForecaster(horizon=12, season_length=16)
    assert model.get_params()["season_length"] == 16
    assert model.set_params(season_length=32).get_params()["season_length"] == 32
    assert repr(model) == "AarenForecaster(horizon=12, season_length=32)"
    with pytest.raises(ConfigError, match="unknown setting 'season_lngth'; did you mean 'season_length'"):
        model.set_params(season_lngth=3)
    with pytest.raises(ConfigError, match=r"horizon must be a whole number, at least 1; got 1.5"):
        AarenForecaster(horizon=1.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not fitted yet"):
        AarenForecaster(horizon=12).predict()


def test_a_constant_series_is_forecast_as_it_is() -> None:
    frame = long_frame()
    frame["y"] = 7.0
    forecast = AarenForecaster(horizon=4).fit(frame).predict()["AarenForecaster"]
    assert (forecast - 7.0).abs().max() < 0.05


def broken(**changes: object) -> pd.DataFrame:
    frame = long_frame()
    for name, value in changes.items():
        frame.loc[41, name] = value
    return frame


def test_bad_frames_are_named() -> None:
    model = AarenForecaster(horizon=12)
    for value in (np.nan, np.inf):
        with pytest.raises(
            DataError, match=r"series 'north', row 41 \(ds = 2024-01-02 17:00:00\): expected a finite number"
        ):
            model.fit(broken(y=value))
    with pytest.raises(DataError, match=r"series 'north' has 1 gap\(s\), the first from 2024-01-02 16:00:00"):
        model.fit(long_frame().drop(index=41))
    with pytest.raises(DataError, match=r"series 'north': ds = 2024-01-01 00:00:00 comes twice"):
        model.fit(broken(ds=pd.Timestamp("2024-01-01")))
    with pytest.raises(DataError, match=r"no column 'ds' and no DatetimeIndex.*time_column="):
        model.fit(long_frame().rename(columns={"ds": "when"}))
    with pytest.raises(DataError, match=r"no column 'y'.*target_column="):
        model.fit(long_frame().rename(columns={"y": "z"}))
    with pytest.raises(
        DataError, match=r"ds must be a date or a whole number; got 'soon'\. If it is one, say how"
    ):
        model.fit(long_frame().astype({"ds": str}).replace({"ds": {"2024-01-02 17:00:00": "soon"}}))
    with pytest.raises(DataError, match=r"expected a pandas DataFrame.*got str"):
        model.fit("mine.csv")
    with pytest.raises(DataError, match="the frame has no rows"):
        model.fit(long_frame().iloc[:0])


def test_bad_updates_are_named(fitted: AarenForecaster) -> None:
    with pytest.raises(
        DataError, match=r"series 'west' was not there when the model was fitted; known are 'north'"
    ):
        fitted.update(long_frame(1, start=300, names=("west",)))
    with pytest.raises(DataError, match=r"2024-01-13 11:00:00 is not after 2024-01-13 11:00:00"):
        fitted.update(long_frame(1, start=299))
    with pytest.raises(DataError, match=r"1 gap\(s\), the first from 2024-01-13 11:00:00"):
        fitted.update(long_frame(1, start=310))
    with pytest.raises(DataError, match="the model was fitted on a long frame"):
        fitted.update(wide_frame(1, start=300))


def frame_of(times: Any, ids: Any = "a") -> pd.DataFrame:
    return pd.DataFrame({"unique_id": ids, "ds": times, "y": np.sin(np.arange(len(times)))})


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("step", ["QE", "YE", "QS", "YS", "ME", "MS", "B", "W-WED", "D", "h", "100ms"])
def test_dates_go_on_in_and_out_of_the_calendar(step: str, zone: str | None, tmp_path: Path) -> None:
    whole = pd.date_range("2020-01-01", periods=60, freq=step, tz=zone)
    model = AarenForecaster(horizon=5).fit(frame_of(whole[:50]))
    model.update(frame_of(whole[50:53]))
    for found in (model, AarenForecaster.load(model.save(tmp_path / "saved"))):
        forecast = found.predict()
        assert forecast["ds"].tolist() == whole[53:58].tolist()
        assert forecast["ds"].dt.tz == whole.tz


def test_dates_with_and_without_a_time_zone_do_not_mix() -> None:
    hours = pd.date_range("2024-03-30", periods=50, freq="h", tz="Europe/Berlin")
    model = AarenForecaster(horizon=5).fit(frame_of(hours[:40]))
    with pytest.raises(DataError, match=r"fitted on times in the time zone Europe/Berlin, these are in None"):
        model.update(frame_of(hours[40:41].tz_localize(None)))
    model.update(frame_of(hours[40:41].tz_convert("UTC")))  # the same moments
    assert model.predict()["ds"].tolist() == hours[41:46].tolist()
    texts = AarenForecaster(horizon=5).fit(frame_of(hours[:40].map(str)))  # of two offsets
    assert texts.predict()["ds"].iloc[0] == hours[40]


@pytest.mark.parametrize("rows", [4, 5, 7, 8, 9, 12])
@pytest.mark.parametrize("horizon", [1, 3, 30])
def test_from_four_rows_on_nothing_is_refused(rows: int, horizon: int) -> None:
    for values in (np.arange(rows) + 3.0, np.full(rows, 2.0), np.exp(np.arange(rows)), -np.arange(rows)):
        forecast = AarenForecaster(horizon=horizon).fit(values).predict(levels=[80, 95])
        numbers = forecast.drop(columns="ds").to_numpy()
        assert np.isfinite(numbers).all()
        assert (np.diff(numbers[:, [3, 1, 0, 2, 4]]) >= -1e-9 * np.abs(numbers).max()).all()
    with pytest.raises(DataError, match="has 3 rows; at least 4 are needed"):
        AarenForecaster(horizon=1).fit(np.arange(3.0))


def test_short_series_continue_at_their_step_or_at_the_one_named() -> None:
    days = pd.date_range("2024-01-01", periods=40, freq="D")
    frame = pd.concat([frame_of(days, "long"), frame_of(days[20:24], "short")])
    forecast = AarenForecaster(horizon=3).fit(frame).predict()
    assert forecast.loc[forecast["unique_id"] == "short", "ds"].tolist() == days[24:27].tolist()
    named = AarenForecaster(horizon=2, freq="W-MON").fit(frame_of(days[::7], "weeks")).predict()
    assert named["ds"].tolist() == [pd.Timestamp("2024-02-12"), pd.Timestamp("2024-02-19")]
    frame["ds"] = (frame["ds"] - days[0]) // pd.Timedelta(hours=1)
    forecast = AarenForecaster(horizon=3, freq=24).fit(frame).predict()
    assert forecast.loc[forecast["unique_id"] == "short", "ds"].tolist() == [576, 600, 624]


def test_columns_of_a_wide_frame_may_end_at_different_times() -> None:
    model = AarenForecaster(horizon=4).fit(wide_frame())
    before = model.predict()
    model.update(wide_frame(2, start=300)[["ds", "south"]])
    after = model.predict()
    assert after["ds"].tolist() == pd.date_range("2024-01-13 12:00", periods=6, freq="h").tolist()
    pd.testing.assert_series_equal(after["north"][:4], before["north"])
    assert after["north"].isna().tolist() == [False] * 4 + [True] * 2
    assert after["south"].isna().tolist() == [True] * 2 + [False] * 4


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([1, "1"], object),
        ([1, 2], np.int64),
        ([0.5, 1.5], np.float64),
        (["b", "a"], "str"),
        ([7, 9], "int32"),
    ],
)
def test_ids_keep_their_type(ids: list[Any], kind: Any, tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=40, freq="D")
    frame = pd.concat([frame_of(days, ids[0]), frame_of(days, ids[1])])
    frame["unique_id"] = pd.Series([ids[0]] * 40 + [ids[1]] * 40, index=frame.index, dtype=kind)
    model = AarenForecaster(horizon=3).fit(frame)
    for found in (model, AarenForecaster.load(model.save(tmp_path / "saved"))):
        forecast = found.predict()
        assert forecast["unique_id"].dtype == frame["unique_id"].dtype
        names = forecast["unique_id"].drop_duplicates().tolist()
        assert sorted(map(repr, names)) == sorted(map(repr, frame["unique_id"].drop_duplicates().tolist()))
        assert len(forecast) == 6
    wide = (
        frame_of(days)[["ds", "y"]]
        .rename(columns={"y": ids[0]})
        .assign(**{"z": 1.0})
        .rename(columns={"z": ids[1]})
    )
    assert list(AarenForecaster(horizon=3).fit(wide).predict().columns) == ["ds", *ids]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_rows_of_nobody_are_refused(missing: Any) -> None:
    frame = long_frame().astype({"unique_id": object})
    frame.loc[5, "unique_id"] = missing
    with pytest.raises(DataError, match=r"row 5: 'unique_id' is missing \(1 such\)"):
        AarenForecaster(horizon=4).fit(frame)
    with pytest.raises(DataError, match="column 1 of the frame has no name"):
        AarenForecaster(horizon=4).fit(wide_frame().rename(columns={"north": missing}))


def test_columns_and_ids_that_name_nothing_are_refused() -> None:
    wide = wide_frame()
    wide.columns = pd.Index(["ds", "a", "a"])
    with pytest.raises(DataError, match="several columns 'a'"):
        AarenForecaster(horizon=4).fit(wide)
    levels = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    with pytest.raises(DataError, match="columns of several levels are not read"):
        AarenForecaster(horizon=4).fit(wide_frame().set_index("ds").set_axis(levels, axis=1))
    lists = long_frame().assign(unique_id=[[1]] * 600)
    with pytest.raises(DataError, match=r"ids in 'unique_id' must be text or numbers; got \[1\]"):
        AarenForecaster(horizon=4).fit(lists)
    long = pd.concat([long_frame(), long_frame()[["y"]]], axis=1)
    with pytest.raises(DataError, match="several columns 'y'"):
        AarenForecaster(horizon=4).fit(long)


@pytest.mark.parametrize("times", [[0.5, 1.5], [1.0, np.nan], [True, False], [1, "soon"], [1, None]])
def test_times_are_dates_or_whole_numbers(times: list[Any]) -> None:
    frame = pd.DataFrame({"unique_id": "a", "ds": pd.Series(times, dtype=object), "y": 1.0})
    with pytest.raises(DataError, match="ds must be a date or a whole number; got"):
        AarenForecaster(horizon=1).fit(frame)


@pytest.mark.parametrize("value", [1e17, 1e39, -1e300, 1.7e308])
def test_what_the_model_cannot_hold_leaves_no_trace(value: float) -> None:
    model = AarenForecaster(horizon=4).fit(long_frame())
    before, state = model.predict(), state_to_bytes(model.state_)
    new = pd.concat([long_frame(9, start=300, names=("north",)), long_frame(2, start=300).iloc[2:]])
    new.loc[new["unique_id"] == "south", "y"] = value
    with pytest.raises(
        DataError, match=r"series 'south': .* at 2024-01-13 12:00:00 is too far from what was fitted"
    ):
        model.update(new)
    assert state_to_bytes(model.state_) == state
    pd.testing.assert_frame_equal(model.predict(), before)


def test_numbers_whose_squares_overflow_are_refused() -> None:
    with pytest.raises(DataError, match=r"series 'north' reaches from .* too large for float64"):
        AarenForecaster(horizon=4).fit(long_frame().assign(y=lambda frame: 1e200 * frame["y"]))


def test_large_units_are_only_units() -> None:
    frame = long_frame()
    small = AarenForecaster(horizon=4).fit(frame).predict()["AarenForecaster"]
    frame["y"] *= 2.0**200
    large = AarenForecaster(horizon=4).fit(frame).predict()["AarenForecaster"]
    np.testing.assert_allclose(large.to_numpy(), small.to_numpy() * 2.0**200)


def test_settings_changed_by_hand_hold_from_the_next_fit_on(tmp_path: Path) -> None:
    model = AarenForecaster(horizon=4)
    model.season_length, model.horizon = 8, np.int64(3)
    assert model.get_params()["season_length"] == 8
    assert len(model.fit(long_frame()).predict()) == 6
    assert AarenForecaster.load(model.save(tmp_path)).get_params()["horizon"] == 3
    model.season_length = 0
    with pytest.raises(ConfigError, match="season_length"):
        model.fit(long_frame())
    with pytest.raises(ConfigError, match="season_length"):
        model.set_params(horizon=9)
    assert model.horizon == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("season_length", 0),
            ("season_length", 7.5),
            ("horizon", 10**20),
            ("horizon", 0),
            ("horizon", True),
        ),
        *(("freq", 1.5), ("freq", True), ("fill", "guess"), ("covariates", "price")),
    ],
)
def test_settings_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}.* must be.*got"):
        AarenForecaster(**{"horizon": 4, name: value})


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    model = AarenForecaster(horizon=np.int64(2), season_length=np.int32(20)).fit(long_frame())
    again = AarenForecaster.load(model.save(tmp_path))
    pd.testing.assert_frame_equal(again.predict(), model.predict())
    assert again.season_length == 20


def rewrite(folder: Path, description: str) -> None:
    """Change the description as a program would that writes such folders itself, checksums included."""
    write_files(folder, {**read_files(folder), "estimator.json": description.encode()})


def test_damaged_files_are_named(fitted: AarenForecaster, tmp_path: Path) -> None:
    folder = fitted.save(tmp_path / "saved")
    description = folder / "estimator.json"
    whole = description.read_text()
    damaged = [whole[:place] for place in range(0, len(whole), max(1, len(whole) // 23))]
    damaged += ["[]", "{}", "null", whole.replace('"ids"', '"idz"'), whole.replace('"north"', '["north"]', 1)]
    damaged += [
        whole.replace('"datetime64[us]"', '"nonsense"'),
        "[" * 100_000,
        whole.replace('"season_length": null', '"season_length": "x"'),
    ]
    for text in damaged:
        if text != whole:
            rewrite(folder, text)
            with pytest.raises(AarenError):
                AarenForecaster.load(folder)
    rewrite(folder, whole)
    AarenForecaster.load(folder)
    (folder / "arrays.safetensors").unlink()
    with pytest.raises(DataError, match=r"arrays\.safetensors"):
        AarenForecaster.load(folder)


def test_ids_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=40, freq="D")
    model = AarenForecaster(horizon=3).fit(frame_of(days, pd.Timestamp("2024-01-01")))
    assert model.predict()["unique_id"].iloc[0] == pd.Timestamp("2024-01-01")
    with pytest.raises(DataError, match="ids of type Timestamp cannot be saved"):
        model.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def autoregression(noise: np.random.Generator, rows: int) -> np.ndarray:
    values = noise.normal(size=rows)
    for row in range(1, rows):
        values[row] += 0.7 * values[row - 1]
    return values


def seasons(noise: np.random.Generator, rows: int) -> np.ndarray:
    months = np.arange(rows)
    return 0.5 * months + 10 * np.sin(months * np.pi / 6) + 2 * noise.normal(size=rows)


def random_walk(noise: np.random.Generator, rows: int) -> np.ndarray:
    return noise.normal(size=rows).cumsum()


def growth(noise: np.random.Generator, rows: int) -> np.ndarray:
    """Errors grow with the level."""
    return np.exp(0.05 * np.arange(rows) + 0.1 * noise.normal(size=rows).cumsum())


@pytest.mark.parametrize("process", [autoregression, seasons, random_walk, growth])
@pytest.mark.parametrize(("rows", "horizon"), [(32, 12), (40, 12), (40, 6)])
def test_intervals_of_very_short_series_hold_what_they_say(
    process: Callable[[np.random.Generator, int], np.ndarray], rows: int, horizon: int
) -> None:
    """Few residuals, read as quantiles, gave intervals without width around 40 rows."""
    months = pd.date_range("2015-01-31", periods=rows + horizon, freq="ME")
    inside = []
    for seed in range(20):
        frame = frame_of(months, "a").assign(y=process(np.random.default_rng(seed), rows + horizon))
        model = AarenForecaster(horizon).fit(frame[:rows])
        said, truth = model.predict(levels=[80, 95]), frame["y"].to_numpy()[rows:]
        inside.append(
            [
                (
                    (truth >= said[f"AarenForecaster-lo-{level}"])
                    & (truth <= said[f"AarenForecaster-hi-{level}"])
                ).mean()
                for level in (80, 95)
            ]
        )
    eighty, ninety_five = np.mean(inside, axis=0)
    # Growth goes on beyond all that was seen; 32 rows say little of how far a walk goes in 12.
    least = {growth: (0.45, 0.7), random_walk: (0.7, 0.9)}.get(process, (0.72, 0.9))
    assert eighty >= least[0]
    assert ninety_five >= least[1]
    if process is not seasons:  # which were seen two or three times: rather too wide
        assert eighty <= 0.95


def test_intervals_hold_the_forecast_and_widen_with_the_level(fitted: AarenForecaster) -> None:
    forecast = fitted.predict(6, levels=[80, 95])
    assert len(forecast) == 12
    columns = [f"AarenForecaster-{side}-{level}" for side in ("lo", "hi") for level in (80, 95)]
    assert list(forecast.columns)[3:] == [columns[0], columns[2], columns[1], columns[3]]
    low80, low95, high80, high95 = (forecast[name] for name in columns)
    assert ((low95 <= low80) & (low80 <= high80) & (high80 <= high95)).all()
    wide = AarenForecaster(horizon=4).fit(wide_frame()).predict(levels=[90])
    assert list(wide.columns) == [
        "ds",
        "north",
        "north-lo-90",
        "north-hi-90",
        "south",
        "south-lo-90",
        "south-hi-90",
    ]
    for wrong in (100, 0.9):  # 0.9: meant as 90
        with pytest.raises(ConfigError, match=f"levels are in percent.*got {wrong}"):
            fitted.predict(levels=[wrong])


def test_beyond_the_horizon_by_recursion_with_a_warning(fitted: AarenForecaster) -> None:
    with pytest.warns(UserWarning, match="h = 30 is beyond the fitted horizon of 12"):
        forecast = fitted.predict(30, levels=[80])
    assert len(forecast) == 60
    pd.testing.assert_series_equal(forecast["AarenForecaster"][:12], fitted.predict()["AarenForecaster"][:12])
    truth = long_frame(30, start=300)
    north = forecast["AarenForecaster"][:30].to_numpy()
    assert np.abs(north - truth["y"][:30].to_numpy()).max() < 0.2
    width = (forecast["AarenForecaster-hi-80"] - forecast["AarenForecaster-lo-80"])[:30].to_numpy()
    assert width[29] >= width[11]
    with pytest.raises(ConfigError, match="h must be a whole number, at least 1; got 0"):
        fitted.predict(0)


@pytest.mark.parametrize("fill", ["interpolate", "seasonal"])
def test_missing_rows_and_values_are_filled(fill: Any) -> None:
    whole = wide_frame(400)
    holes = whole.drop(index=[40, 41, 200])
    holes.loc[60:62, "north"] = np.nan
    model = AarenForecaster(horizon=6, fill=fill).fit(holes)
    truth = wide_frame(6, start=400)["north"].to_numpy()
    assert np.abs(model.predict()["north"].to_numpy() - truth).max() < 0.3
    later = wide_frame(10, start=400).drop(index=[0, 1])  # a gap between what is known and what comes
    model.update(later)
    assert model.state_.num_rows.tolist() == [[410, 410]]
    assert model.predict()["ds"].iloc[0] == pd.Timestamp("2024-01-01") + pd.Timedelta(hours=410)


def test_hours_go_on_over_a_change_of_clocks() -> None:
    hours = pd.date_range("2024-01-01", "2024-03-31 12:00", freq="h", tz="Europe/Berlin")
    values = np.where(hours.hour == 8, 5.0, 0.0) + 0.01 * np.random.default_rng(0).normal(size=len(hours))
    gaps = pd.DataFrame({"ds": hours, "load": values}).drop(index=[100, 101, 700])
    model = AarenForecaster(horizon=24, fill="seasonal").fit(gaps)
    forecast = model.predict()
    assert forecast["ds"].iloc[0] == hours[-1] + pd.Timedelta(hours=1)
    model.push({"load": 0.0}, when=hours[-1] + pd.Timedelta(hours=1))
    assert model.predict()["ds"].iloc[0] == hours[-1] + pd.Timedelta(hours=2)


def test_all_faults_are_told_at_once() -> None:
    frame = long_frame()
    frame.loc[41, "y"] = np.nan
    frame = frame.drop(index=400)
    with pytest.raises(DataError, match=r"(?s)series 'north', row 41.*series 'south' has 1 gap"):
        AarenForecaster(horizon=4).fit(frame)


def test_series_arrays_and_periods_are_taken() -> None:
    values = np.sin(np.arange(200) * 2 * np.pi / 24)
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    by_series = AarenForecaster(horizon=6).fit(pd.Series(values, index=hours, name="load")).predict()
    assert list(by_series.columns) == ["ds", "load"]
    by_array = AarenForecaster(horizon=6).fit(values)
    assert by_array.predict()["ds"].tolist() == [*range(200, 206)]
    assert by_array.update(values[:3]).predict()["ds"].tolist() == [*range(203, 209)]
    table = AarenForecaster(horizon=6).fit(np.stack([values, -values], axis=1)).predict()
    assert list(table.columns) == ["ds", 0, 1]
    months = pd.period_range("2010-01", periods=100, freq="M")
    by_period = AarenForecaster(horizon=6).fit(pd.Series(values[:100], index=months)).predict()
    assert by_period["ds"].tolist() == pd.date_range("2018-05-01", periods=6, freq="MS").tolist()


def test_known_covariates_of_the_future_are_used() -> None:
    noise = np.random.default_rng(0)
    frame = long_frame(700, names=("north",))
    frame["holiday"] = (noise.random(700) < 0.1).astype(float)
    frame["y"] += 3.0 * frame["holiday"] + 0.05 * noise.normal(size=700)
    known, future = frame[:688], frame[688:]
    model = AarenForecaster(horizon=12, covariates=["holiday"]).fit(known)
    forecast = model.predict(X_future=future.drop(columns="y"))
    assert np.abs(forecast["AarenForecaster"].to_numpy() - future["y"].to_numpy()).max() < 0.6
    with pytest.raises(DataError, match=r"fitted with holiday: give them"):
        model.predict()
    with pytest.raises(DataError, match=r"X_future lacks .* of series 'north' \(2 of 12"):
        model.predict(X_future=future[:10])
    model.update(future[:3])
    assert len(model.predict(9, X_future=future)) == 9
    assert model.score(future[3:]) > 0.8
    assert model.plot(h=9, X_future=future).get_title() == "north"


def test_cross_validation_forecasts_windows_as_they_would_have_been() -> None:
    frame = long_frame(400)
    model = AarenForecaster(horizon=12)
    found = model.cross_validation(frame, 6, n_windows=3, step_size=4, levels=[80])
    assert list(found.columns)[:4] == ["unique_id", "ds", "cutoff", "AarenForecaster"]
    assert len(found) == 3 * 2 * 6
    cutoffs = found["cutoff"].drop_duplicates().tolist()
    assert cutoffs == [pd.Timestamp("2024-01-01") + pd.Timedelta(hours=hour) for hour in (385, 389, 393)]
    merged = found.merge(frame, on=["unique_id", "ds"])
    np.testing.assert_array_equal(merged["y_x"], merged["y_y"])
    assert not hasattr(model, "model_")
    with pytest.raises(DataError, match="too short for 99 windows"):
        model.cross_validation(frame, 6, n_windows=99)


def test_a_table_says_which_candidates_carry_the_weight(capsys: pytest.CaptureFixture[str]) -> None:
    model = AarenForecaster(horizon=6, verbose=True).fit(long_frame(600))
    results, printed = capsys.readouterr()
    assert not results
    assert "lags of weekly changes" not in printed or "season" in printed
    assert sum(weight for weight, _ in model.candidates_.values()) == pytest.approx(1.0)
    assert all(name in model.table() for name in model.candidates_)


def test_many_rows_are_compared_with_the_linear_model_on_many_lags() -> None:
    noise, values = np.random.default_rng(0), np.zeros(3400)
    for row in range(200, 3400):  # an echo that a smoother cannot keep
        values[row] = 0.9 * values[row - 100] + noise.normal()
    model = AarenForecaster(horizon=4).fit(values)
    assert isinstance(model.model_, LagForecaster)
    assert model.held_out_["AarenForecaster"] < model.held_out_["bank of smoothers"]
    assert "bank of smoothers" in model.table()


def test_pushing_equals_updating_and_a_session_goes_on_from_there(
    fitted: AarenForecaster, tmp_path: Path
) -> None:
    one, other = (AarenForecaster.load(fitted.save(tmp_path / str(place))) for place in range(2))
    new = long_frame(3, start=300)
    one.update(new)
    for when, rows in new.groupby("ds"):
        other.push(dict(zip(rows["unique_id"], rows["y"], strict=True)), when=when)
    pd.testing.assert_frame_equal(one.predict(), other.predict())
    session = fitted.stream()
    for _, rows in new.groupby("ds"):
        forecast = session.push(rows["y"].to_numpy())
    np.testing.assert_allclose(
        forecast.T.flatten().numpy(), one.predict()["AarenForecaster"].to_numpy(), rtol=1e-9
    )
    with pytest.raises(DataError, match="is not after"):
        other.push([1.0, 2.0], when=pd.Timestamp("2024-01-01"))
    with pytest.raises(DataError, match="a value for each of the 2 series; got 1"):
        other.push([1.0])
    alone = other.push([1.0, float("nan")]).state_
    assert (alone.num_rows[0, 0] - alone.num_rows[0, 1]).item() == 1


def test_plots_have_a_fan(fitted: AarenForecaster) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    axes = fitted.plot("south", levels=[80])
    assert axes.get_title() == "south"
    assert len(axes.collections) == 1
    with pytest.raises(DataError, match="no series 'west'"):
        fitted.plot("west")


def echoes(rows: int, weight: float, *, seed: int) -> np.ndarray:
    noise, values = np.random.default_rng(seed), np.zeros(rows)
    for row in range(2, rows):
        values[row] = weight * values[row - 2] + noise.normal()
    return values


def test_many_short_series_keep_their_season() -> None:
    rng, months = np.random.default_rng(0), np.arange(36)
    level, phase = 50.0 * np.exp(rng.normal(size=(40, 1))), rng.uniform(0, 6, (40, 1))
    values = level * (1 + 0.3 * np.sin(2 * np.pi * months / 12 + phase)) + rng.normal(0, 2, (40, 36))
    dates = pd.date_range("2023-01-31", periods=36, freq="ME")
    wide = pd.DataFrame(values.T, index=dates, columns=[f"shop {place}" for place in range(40)])
    model = AarenForecaster(horizon=6).fit(wide.iloc[:-6])
    assert model.model_.config.season_steps == 12
    assert model.predict(levels=[80, 95]).shape == (6, 1 + 5 * 40)  # pandas warned of so many columns
    errors = {
        "ours": model.predict().iloc[:, -40:].to_numpy(dtype=float) - values.T[-6:],
        "last season": values.T[-18:-12] - values.T[-6:],
    }
    found = {name: np.abs(some / level.T).mean() for name, some in errors.items()}
    assert found["ours"] < found["last season"]


def test_columns_that_nothing_names_are_told() -> None:
    frame = long_frame(120).assign(promo=1.0, region="south")
    with pytest.warns(UserWarning, match="'promo', 'region' are not used. Name those .* in covariates="):
        AarenForecaster(horizon=6).fit(frame)
    with pytest.warns(UserWarning, match="'region' are not used"):
        AarenForecaster(horizon=6, covariates=["promo"]).cross_validation(frame)


def test_shares_are_no_levels(fitted: AarenForecaster) -> None:
    """Some libraries want 0.8 for 80 %: an interval of 0.8 % would be a surprise."""
    with pytest.raises(ConfigError, match=r"in percent, at least 1 and below 100, as .80, 95.; got 0.8"):
        fitted.predict(levels=[0.8])


def test_text_among_covariates_is_no_gap_to_fill() -> None:
    with pytest.raises(
        DataError, match=r"expected a finite number; got cheap .120 such.. Make numbers of text"
    ):
        AarenForecaster(horizon=6, covariates=["price"]).fit(long_frame(120).assign(price="cheap"))


def test_dates_whose_day_comes_first() -> None:
    days = pd.date_range("2026-01-01", periods=60, freq="D")
    frame = pd.DataFrame({"ds": days.strftime("%d.%m.%Y"), "y": np.arange(60) % 7})
    model = AarenForecaster(horizon=3).fit(frame)
    assert model.predict()["ds"].tolist() == list(pd.date_range("2026-03-02", periods=3, freq="D"))
    with pytest.raises(DataError, match=r"when='03.02.2026': write it year first"):
        model.push([1.0], when="03.02.2026")
    with pytest.raises(DataError, match=r"when='03.02.2026': write it year first"):
        model.stream().push([1.0], when="03.02.2026")
    months = [f"01.{month:02}.{year}" for year in range(2020, 2026) for month in range(1, 13)]
    asked = (
        "day first or month first. Say which: .*dayfirst=True"  # never days of January, with years of gaps
    )
    with pytest.raises(DataError, match=asked):
        AarenForecaster(horizon=3, fill="interpolate").fit(pd.DataFrame({"ds": months, "y": np.arange(72)}))
    with pytest.raises(DataError, match=r"to_datetime\(frame\['ds'\], format='%Y%m%d'\)"):
        AarenForecaster(horizon=3).fit(frame.assign(ds=days.strftime("%Y%m%d").astype(int)))
    with pytest.raises(DataError, match="dates or whole numbers; got Timedelta"):
        AarenForecaster(horizon=3).fit(frame.assign(ds=days - days[0]))


def test_lists_and_dictionaries_of_series() -> None:
    rows = np.sin(np.arange(80))
    by_name = AarenForecaster(horizon=3).fit({"one": rows, "two": list(rows[:50])})
    forecast = by_name.predict()
    assert forecast["unique_id"].tolist() == ["one"] * 3 + ["two"] * 3
    assert forecast["ds"].tolist() == [80, 81, 82, 50, 51, 52]
    by_name.update({"two": [0.1, 0.2]})
    assert by_name.predict(1)["ds"].tolist() == [80, 52]
    assert by_name.score({"one": rows[:3]}) < 1.0
    numbered = AarenForecaster(horizon=3).fit([rows, rows[:50]]).predict()
    np.testing.assert_array_equal(numbered["AarenForecaster"], forecast["AarenForecaster"])
    assert numbered["unique_id"].tolist() == [0] * 3 + [1] * 3
    days = pd.Series(rows, index=pd.date_range("2026-01-01", periods=80))
    dated = AarenForecaster(horizon=3).fit({"one": days, "two": days[:50]}).predict(1)
    assert dated["ds"].tolist() == [pd.Timestamp("2026-03-22"), pd.Timestamp("2026-02-20")]
    zoned = AarenForecaster(horizon=3).fit({"one": days.tz_localize("Europe/Berlin")})
    zoned.update({"one": [0.1, 0.2]})  # without times: they follow
    assert zoned.predict(1)["ds"].tolist() == [pd.Timestamp("2026-03-24", tz="Europe/Berlin")]
    wide = AarenForecaster(horizon=3).fit(days.rename("one"))
    assert wide.update([0.1, 0.2]).predict(1)["ds"].tolist() == [pd.Timestamp("2026-03-24")]
    with pytest.raises(DataError, match="series 'three' was not there when the model was fitted"):
        zoned.update({"three": [0.1]})
    alone = AarenForecaster(horizon=3)
    pd.testing.assert_frame_equal(alone.fit(rows.tolist()).predict(), alone.fit(rows).predict())
    columns = {"ds": days.index, "y": rows}
    pd.testing.assert_frame_equal(alone.fit(columns).predict(), alone.fit(pd.DataFrame(columns)).predict())
    for wrong in ({"one": 3.0}, {"one": []}, [rows, rows[:, None]]):
        with pytest.raises(DataError, match=r"series .*: expected numbers along one axis; got"):
            alone.fit(wrong)


def test_hints_for_what_is_usually_wrong() -> None:
    model = AarenForecaster(horizon=3)
    days = pd.date_range("2026-01-01", periods=30)
    shops = pd.concat([pd.DataFrame({"ds": days, "shop": shop, "sold": 1.5}) for shop in (1, 2)])
    with pytest.raises(DataError, match=r"several 'shop': .* id_column='shop', target_column='sold'"):
        model.fit(shops)
    with pytest.raises(DataError, match=r"got 1,5 .* pandas.read_csv\(..., decimal=','\)"):
        model.fit(pd.DataFrame({"ds": days, "y": "1,5"}))
    with pytest.raises(DataError, match=r"An array is .rows, series.: is it transposed"):
        model.fit(np.zeros((3, 30)))
    berlin = pd.date_range("2026-03-28", periods=72, freq="h", tz="Europe/Berlin").tz_localize(None)
    with pytest.raises(DataError, match=r"clocks were set forward then, say where: .*tz_localize"):
        model.fit(pd.Series(np.arange(72.0), index=berlin))
    berlin = pd.date_range("2026-10-24", periods=72, freq="h", tz="Europe/Berlin").tz_localize(None)
    with pytest.raises(DataError, match=r"clocks were set back then, say where: .*ambiguous='infer'"):
        model.fit(pd.Series(np.arange(72.0), index=berlin))
    model.fit(pd.Series(np.arange(30.0) % 7, index=days))
    with pytest.raises(ConfigError, match=r"Give new rows to update\(frame\)"):
        model.predict(shops)


@pytest.mark.parametrize("levels", [80, [0.8], [100], ["80"], [True]])
def test_levels_are_a_list_of_percents(fitted: AarenForecaster, levels: Any) -> None:
    for ask in (lambda: fitted.predict(levels=levels), lambda: fitted.stream().quantiles(levels)):
        with pytest.raises(ConfigError, match=r"levels are in percent, .* as \[80, 95\]; got"):
            ask()


def test_a_row_with_an_unknown_name_or_a_gap_is_refused_like_in_update(fitted: AarenForecaster) -> None:
    model = copy.deepcopy(fitted)
    with pytest.raises(ConfigError, match=r"unknown series 'nort'.*north"):
        model.push({"nort": 99.0})
    last = long_frame(300)["ds"].max()
    with pytest.raises(DataError, match=r"series 'north' has 1 gap"):
        model.push({"north": 5.0}, when=last + pd.Timedelta(days=400))
    with pytest.raises(DataError, match=r"row: expected real numbers; got complex128"):
        model.push([1j, 2.0])
    pd.testing.assert_frame_equal(model.predict(), fitted.predict())


def test_a_gap_before_a_row_is_filled_where_update_fills_it() -> None:
    hours = pd.date_range("2024-01-01", periods=80, freq="h")
    values = pd.Series(np.arange(80.0) % 24, index=hours, name="load")
    pushed = AarenForecaster(horizon=4, fill="interpolate").fit(values[:70])
    updated = copy.deepcopy(pushed).update(values[74:75])
    pushed.push({"load": float(values.iloc[74])}, when=hours[74])
    pd.testing.assert_frame_equal(pushed.predict(), updated.predict())


@pytest.mark.parametrize("wrong", [9.97e36, 1e20, 1e16, -1e20])
def test_a_fill_value_is_refused_with_its_row(wrong: float) -> None:
    values = np.random.default_rng(0).normal(size=300)
    values[17] = wrong
    with pytest.raises(DataError, match=r"row 17 .*a fill value\?"):
        AarenForecaster(horizon=4).fit(values)


def test_masked_and_complex_values_are_refused() -> None:
    values = np.ma.array(np.arange(60.0), mask=np.arange(60) == 7)
    for masked in (values, {"a": values}, [values, values]):
        with pytest.raises(DataError, match="masked"):
            AarenForecaster(horizon=4).fit(masked)
    for numbers in (np.arange(60) * 1j, {"a": np.arange(60) * 1j}, pd.Series(np.arange(60) * 1j, name="y")):
        with pytest.raises(DataError, match="expected real numbers; got complex128"):
            AarenForecaster(horizon=4).fit(numbers)


def test_a_horizon_that_would_take_minutes_is_refused(fitted: AarenForecaster) -> None:
    with pytest.raises(ConfigError, match="h must be at most 100 times the fitted horizon"):
        fitted.predict(10**6)


def test_a_forecaster_is_saved_over_one_of_another_kind(tmp_path: Path) -> None:
    AarenForecaster(horizon=2).fit(hours_of(3200)).save(tmp_path / "model")  # many rows: may be many lags
    short = AarenForecaster(horizon=2).fit(np.random.default_rng(0).normal(size=12).cumsum())
    short.save(tmp_path / "model")
    pd.testing.assert_frame_equal(AarenForecaster.load(tmp_path / "model").predict(), short.predict())


def hours_of(rows: int) -> np.ndarray:
    noise = np.random.default_rng(1)
    return np.sin(np.arange(rows) * 2 * np.pi / 24) + 0.1 * noise.normal(size=rows)
