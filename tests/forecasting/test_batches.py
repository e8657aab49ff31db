"""Series as tensors: splits, windows, scaling, loaders."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from aaren.datasets.catalogue import lookup
from aaren.errors import ConfigError, DataError, ShapeError
from aaren.forecasting import batches as forecasting
from aaren.forecasting.batches import ForecastBatch, Windows
from aaren.forecasting.data import Series, Split, measure, seasonal, split_rows, time_marks


@pytest.fixture
def real(mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return mirror


@pytest.fixture
def small() -> forecasting.ForecastingData:
    series = seasonal(rows=600, num_series=3)
    return forecasting.prepare(series, name="small", split=split_rows(600))


def test_splits_follow_the_protocol() -> None:
    assert split_rows(17_420, "months") == Split(train=8640, validation=2880, test=2880)
    assert split_rows(69_680, "months", rows_per_hour=4) == Split(train=34560, validation=11520, test=11520)
    assert split_rows(52_696) == Split(train=36887, validation=5270, test=10539)
    assert split_rows(26_304) == Split(train=18412, validation=2632, test=5260)
    with pytest.raises(DataError, match="needs 20 months, 14400 rows; got 100"):
        split_rows(100, "months")
    with pytest.raises(ConfigError, match="unknown split rule 'weeks'"):
        split_rows(100, "weeks")


@pytest.mark.parametrize(
    ("name", "horizon", "expected"),
    [
        ("ETTh1", 96, (8449, 2785, 2785)),
        ("ETTh2", 720, (7825, 2161, 2161)),
        ("ETTm1", 96, (34369, 11425, 11425)),
        ("ETTm2", 720, (33745, 10801, 10801)),
        ("Weather", 96, (36696, 5175, 10444)),
        ("Weather", 720, (36072, 4551, 9820)),
        ("Exchange", 96, (5120, 665, 1422)),
        ("Exchange", 720, (4496, 41, 798)),
        ("Traffic", 96, (12089, 1661, 3413)),
        ("Traffic", 720, (11465, 1037, 2789)),
        ("ECL", 96, (18221, 2537, 5165)),
        ("ECL", 720, (17597, 1913, 4541)),
    ],
)
def test_window_counts_need_no_file(name: str, horizon: int, expected: tuple[int, int, int]) -> None:
    row = lookup(name)
    rows = int(row.facts["rows"])
    split = split_rows(
        rows, str(row.options["split"]), rows_per_hour=int(row.options.get("rows_per_hour", 1))
    )
    values, marks = torch.zeros(rows, 1), torch.zeros(rows, 4)
    counts = []
    for part in ("train", "validation", "test"):
        begin, end = split.bounds(part, 96)
        windows = Windows(
            values=values[begin:end], marks=marks[begin:end], past_steps=96, horizon_steps=horizon
        )
        counts.append(len(windows))
    assert tuple(counts) == expected


def test_the_first_forecast_of_a_part_begins_at_its_border(small: forecasting.ForecastingData) -> None:
    windows = small.windows("validation", horizon_steps=5, past_steps=10)
    batch = windows.take(torch.tensor([0]))
    assert torch.equal(batch.future[0], small.values[420:425])
    assert torch.equal(batch.past[0], small.values[410:420])
    assert torch.equal(batch.future_marks[0], small.marks[420:425])
    last = small.windows("test", horizon_steps=5, past_steps=10)
    assert torch.equal(last.take(torch.tensor([len(last) - 1])).future[0], small.values[595:600])


def test_taking_windows_equals_slicing_one_by_one(
    small: forecasting.ForecastingData, rng: torch.Generator
) -> None:
    windows = small.windows("train", horizon_steps=7, past_steps=12)
    numbers = torch.randint(len(windows), (9,), generator=rng)
    batch = windows.take(numbers)
    for place, start in enumerate(numbers.tolist()):
        assert torch.equal(batch.past[place], small.values[start : start + 12])
        assert torch.equal(batch.past_marks[place], small.marks[start : start + 12])
        assert torch.equal(batch.future[place], small.values[start + 12 : start + 19])
    assert torch.equal(windows.past[3], small.values[3:15])
    assert torch.equal(windows.future[3], small.values[15:22])


def test_windows_are_views_of_the_series(small: forecasting.ForecastingData) -> None:
    windows = small.windows("test", horizon_steps=7, past_steps=12)
    storage = small.values.untyped_storage().data_ptr()
    assert windows.past.untyped_storage().data_ptr() == storage
    assert windows.future.untyped_storage().data_ptr() == storage


_MEMORY = """
import resource, sys, torch
from aaren.forecasting.batches import Windows
values, marks = torch.randn(34_560, 7), torch.randn(34_560, 4)
windows = Windows(values=values, marks=marks, past_steps=96, horizon_steps=720)
windows.take(torch.arange(32))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
windows = [Windows(values=values, marks=marks, past_steps=96, horizon_steps=720) for _ in range(3)]
total = sum(w.past.numel() + w.future.numel() for w in windows)
for w in windows:
    w.take(torch.arange(0, len(w), 1100))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(windows[0]), total * 4 // 2**20, (after - before) // 1024)
"""


def test_all_windows_of_horizon_720_cost_no_more_memory_than_the_series() -> None:
    out = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True).stdout
    count, apparent_megabytes, used_megabytes = map(int, out.split())
    assert count == 33_745
    assert apparent_megabytes > 2_000
    assert used_megabytes <= 4


def test_scaling_uses_the_training_rows_and_the_population_standard_deviation() -> None:
    values = np.array([[1.0, 5.0], [3.0, 5.0], [100.0, 7.0]])
    dates = np.datetime64("2020-01-01T00", "s") + np.arange(3) * np.timedelta64(1, "h")
    series = Series(name="x", columns=("a", "b"), dates=dates, values=values)
    data = forecasting.prepare(series, name="x", split=Split(train=2, validation=0, test=1))
    assert data.mean.tolist() == [2.0, 5.0]
    assert data.deviation.tolist() == [1.0, 1.0]  # the second column is constant on the training rows
    assert data.values.tolist() == [[-1.0, 0.0], [1.0, 0.0], [98.0, 2.0]]


def test_time_marks() -> None:
    marks = time_marks(np.array(["2016-07-01T00:45", "2017-12-31T23:10"], dtype="datetime64[s]"))
    # a Friday, the 183rd day of a leap year; a Sunday, the 365th day
    assert marks[0].tolist() == pytest.approx([-0.5, 4 / 6 - 0.5, -0.5, 182 / 365 - 0.5])
    assert marks[1].tolist() == pytest.approx([0.5, 0.5, 0.5, 364 / 365 - 0.5])


def test_loaders_follow_the_protocol(small: forecasting.ForecastingData) -> None:
    loaders = small.loaders(horizon_steps=5, past_steps=10, batch_size=8, seed=1)
    train, test = list(loaders.train), list(loaders.test)
    assert len(train) == len(loaders.train) == (420 - 15 + 1) // 8
    assert {len(batch) for batch in train} == {8}
    assert sum(len(batch) for batch in test) == 120 - 5 + 1
    assert torch.equal(test[0].future[1], small.values[481:486])
    kept = small.loaders(horizon_steps=5, past_steps=10, batch_size=8, last_batch="keep")
    assert sum(len(batch) for batch in kept.train) == 406
    with pytest.raises(ConfigError, match="last_batch must be 'protocol' or 'keep'"):
        small.loaders(horizon_steps=5, last_batch="drop")  # type: ignore[arg-type]


def test_the_order_depends_on_seed_and_epoch_only(small: forecasting.ForecastingData) -> None:
    one = small.loaders(horizon_steps=5, seed=1).train
    same = small.loaders(horizon_steps=5, seed=1).train
    other = small.loaders(horizon_steps=5, seed=2).train
    assert torch.equal(one.order(3), same.order(3))
    assert not torch.equal(one.order(3), one.order(4))
    assert not torch.equal(one.order(3), other.order(3))
    assert sorted(one.order(3).tolist()) == list(range(len(small.windows("train", horizon_steps=5))))


def test_what_does_not_fit_is_said(small: forecasting.ForecastingData) -> None:
    with pytest.raises(DataError, match=r"156 rows are too few for one window of 96 \+ 96 = 192 rows"):
        small.windows("validation", horizon_steps=96)
    with pytest.raises(ConfigError, match="past_steps = 500 is longer than the 420 training rows"):
        small.windows("validation", horizon_steps=1, past_steps=500)
    with pytest.raises(ConfigError, match="at least 1 row of past and of future"):
        small.windows("train", horizon_steps=0)
    with pytest.raises(
        ConfigError, match=r"the train part makes \d+ windows, no full batch of 1000, .* last_batch=keep"
    ):
        small.loaders(horizon_steps=5, batch_size=1000)
    with pytest.raises(ConfigError, match="unknown part 'tests'"):
        small.windows("tests", horizon_steps=5)  # type: ignore[arg-type]


def test_the_generated_set_needs_no_file_and_is_reproducible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AAREN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = forecasting.load("seasonal")
    assert data.values.shape == (4000, 7)
    assert torch.equal(data.values, forecasting.load("seasonal").values)
    assert not np.array_equal(seasonal(seed=0).values, seasonal(seed=1).values)
    assert len(data.windows("validation", horizon_steps=96)) == 305


def test_a_set_that_is_not_there_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AAREN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"no file forecasting/traffic.csv .* Run: aaren data fetch Traffic"):
        forecasting.load("Traffic")


def test_a_users_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = ["when,load,price"]
    lines += [f"2024-01-{1 + hour // 24:02} {hour % 24:02}:00,{hour},{hour * 2}" for hour in range(200)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    data = forecasting.open_file(tmp_path / "mine.csv", target="load", only_target=True)
    assert data.columns == ("load",)
    assert data.split == Split(train=140, validation=20, test=40)


@pytest.mark.parametrize("name", ["ETTh1", "ETTh2", "ETTm1", "ETTm2", "Weather", "Exchange", "traffic-20"])
@pytest.mark.usefixtures("real")
def test_the_real_files_hold_what_the_registry_says(name: str) -> None:
    assert measure(lookup(name)) == dict(lookup(name).facts)


@pytest.mark.parametrize("name", ["ETTh1", "Weather"])
@pytest.mark.usefixtures("real")
def test_the_real_files_are_scaled_to_unit_training_rows(name: str) -> None:
    data = forecasting.load(name)
    train = data.values[: data.split.train].double()  # rounded to float32, hence the tolerances
    torch.testing.assert_close(train.mean(0), torch.zeros(train.shape[1]).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        train.std(0, correction=0), torch.ones(train.shape[1]).double(), atol=1e-4, rtol=0
    )


def test_weather_has_exactly_its_known_oddities(real: Path) -> None:
    from aaren.forecasting.data import read_series

    path = real / "forecasting" / "weather.csv.gz"
    assert read_series(path, allow_irregular=True).irregular == dict(lookup("Weather").irregular)
    with pytest.raises(DataError, match="repeated date"):
        read_series(path)


def test_ecl_is_read_univariate_and_its_extra_multivariate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = ["date,0,OT,1"] + [f"2016-07-{1 + h // 24:02} {h % 24:02}:00,{h},{h % 24},1" for h in range(600)]
    (tmp_path / "forecasting").mkdir()
    (tmp_path / "forecasting" / "electricity.csv").write_text("\n".join(lines))
    assert forecasting.load("ECL").columns == ("OT",)
    assert forecasting.load("ECL-multivariate").columns == ("0", "1", "OT")


def test_a_batch_checks_itself() -> None:
    with pytest.raises(ShapeError, match=r"future_marks must be \(2, 5, 4\)"):
        ForecastBatch(
            past=torch.zeros(2, 3, 1),
            past_marks=torch.zeros(2, 3, 4),
            future=torch.zeros(2, 5, 1),
            future_marks=torch.zeros(2, 6, 4),
        )
