from collections import Counter

import pytest

from aaren.datasets.catalogue import DATASETS, lookup
from aaren.datasets.settings import BUILT_IN
from aaren.engine.setting import find_setting
from aaren.lab import published


def test_every_cell_has_a_dataset_of_the_registry() -> None:
    for cell in published.cells():
        assert lookup(cell.dataset).name == cell.dataset
        assert lookup(cell.dataset).setting == cell.setting


def test_every_dataset_of_the_paper_has_both_models() -> None:
    found = {(cell.dataset, cell.model) for cell in published.cells()}
    assert found == {(row.name, model) for row in DATASETS for model in published.MODELS}


def test_the_tables_are_whole() -> None:
    assert Counter(cell.setting for cell in published.cells()) == {
        "forecasting": 8 * 4 * 2 * 2,
        "classification": 10 * 2,
        "events": (5 * 3 + 3 * 2) * 2,
        "rl": 12 * 2,
    }


def test_every_metric_is_one_that_the_setting_reports() -> None:
    for setting in BUILT_IN:
        reported = {name.rpartition(".")[2] for name in find_setting(setting).reports}
        wanted = {cell.metric for cell in published.cells() if cell.setting == setting}
        assert wanted <= reported


@pytest.mark.parametrize(
    ("place", "mean", "std"),
    [
        (("forecasting", "ETTh1", 192, "mse", "aaren"), 0.59, 0.03),
        (("classification", "PEMS-SF", None, "accuracy", "transformer"), 0.7873, 0.0206),
        (("events", "wiki", None, "test.nll", "transformer"), 9.66, 0.98),
        (("rl", "walker2d-medium", None, "score", "aaren"), 74.44, 5.16),
    ],
)
def test_numbers_come_in_our_units(
    place: tuple[str, str, int | None, str, str], mean: float, std: float
) -> None:
    cell = published.lookup(*place)
    assert cell is not None
    assert (cell.mean, cell.std) == (mean, std)


@pytest.mark.parametrize(
    "place",
    [
        ("forecasting", "ETTh1", 48, "mse", "aaren"),
        ("events", "sin", None, "accuracy", "aaren"),
        ("events", "mooc-partial", None, "nll", "aaren"),
        ("classification", "Handwriting", None, "accuracy", "minirocket"),
    ],
)
def test_what_the_paper_does_not_have(place: tuple[str, str, int | None, str, str]) -> None:
    assert published.lookup(*place) is None
