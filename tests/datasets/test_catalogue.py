from collections import Counter

import pytest

from aaren.datasets.catalogue import DATASETS, EXTRAS, lookup, select
from aaren.datasets.dataset import Dataset

# rows: windows of train, validation, test at horizons 96 and 720, input length 96
WINDOWS = {
    "ETTh1": ((8449, 2785, 2785), (7825, 2161, 2161)),
    "ETTm1": ((34369, 11425, 11425), (33745, 10801, 10801)),
    "Weather": ((36696, 5175, 10444), (36072, 4551, 9820)),
    "Exchange": ((5120, 665, 1422), (4496, 41, 798)),
    "Traffic": ((12089, 1661, 3413), (11465, 1037, 2789)),
    "ECL": ((18221, 2537, 5165), (17597, 1913, 4541)),
}


def test_the_38() -> None:
    assert Counter(row.setting for row in DATASETS) == {
        "rl": 12,
        "classification": 10,
        "forecasting": 8,
        "events": 8,
    }
    names = [row.name.lower() for row in (*DATASETS, *EXTRAS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", [*DATASETS, *EXTRAS], ids=lambda row: row.name)
def test_a_row_is_complete(row: Dataset) -> None:
    assert row.files
    assert row.facts
    assert row.licence
    assert row.source
    assert all(len(digest) == 64 for digest in row.sha256.values())
    assert all(file in row.files for file in row.sha256)


def test_extras_that_are_parts_say_of_what() -> None:
    originals = {row.name for row in DATASETS}
    parts = [row for row in EXTRAS if not row.is_generated]
    assert all(row.stands_for in originals for row in parts)
    assert {"hopper-medium-regen", "stackoverflow-partial", "traffic-20", "ECL-multivariate"} <= {
        row.name for row in parts
    }


@pytest.mark.parametrize("name", WINDOWS)
def test_window_counts_follow_from_row_counts(name: str) -> None:
    facts = lookup(name).facts
    for horizon, expected in zip((96, 720), WINDOWS[name], strict=True):
        train = int(facts["train"]) - 96 - horizon + 1
        # validation and test begin 96 rows before their border, so the input length cancels
        later = [int(facts[part]) - horizon + 1 for part in ("validation", "test")]
        assert (train, *later) == expected


def test_lookup_ignores_capitals_and_helps_with_a_slip() -> None:
    assert lookup("WEATHER") is lookup("weather")


def test_select_takes_settings_and_names_once() -> None:
    assert len(select(())) == 38
    assert len(select(("rl", "hopper-medium", "sin"))) == 13
