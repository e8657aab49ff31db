"""Aaren against Transformer: pairs by seed, margins fixed beforehand, published numbers where they belong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.lab import published
from aaren.lab.records import collect
from aaren.lab.statistics import Summary
from aaren.report.comparison import (
    Comparison,
    average_difference,
    check_published,
    compare,
    which_are_bold,
)
from aaren.report.names import metric
from aaren.report.rows import arrange, read_results

WriteRun = Callable[..., Path]


def only(root: Path, report: str) -> Comparison:
    rows = arrange(collect(root).records)
    (row,) = [row for row in rows if row.runs.keys() & {"aaren", "transformer"}]
    return compare(row, metric(report))


def test_differences_are_taken_seed_by_seed(tmp_path: Path, write_run: WriteRun) -> None:
    for seed, (aaren, transformer) in enumerate([(0.50, 0.52), (0.60, 0.63), (0.70, 0.70)]):
        write_run(tmp_path, "forecasting", "ETTh1", "aaren", aaren, 1.0, seed=seed, horizon=96)
        write_run(tmp_path, "forecasting", "ETTh1", "transformer", transformer, 1.0, seed=seed, horizon=96)
    write_run(tmp_path, "forecasting", "ETTh1", "aaren", 9.0, 1.0, seed=7, horizon=96)
    found = only(tmp_path, "test.mse")
    assert list(found.differences) == [0, 1, 2]
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(-0.05 / 3)
    assert found.advantage is not None
    assert found.advantage.mean == pytest.approx(0.05 / 3)  # lower is better
    assert found.aaren is not None
    assert found.aaren.count == 4
    assert found.margin == pytest.approx(0.03 * 1.85 / 3)  # 3 % of the Transformer's mean
    assert found.published_margin == pytest.approx(0.04 + 0.01)
    assert found.outcome == "undecided"
    assert found.judgement == "open: about 7 seeds"
    assert found.in_margins == pytest.approx([0.02 / 0.0185, 0.03 / 0.0185, 0.0], abs=1e-9)
    assert found.published["aaren"].mean == 0.53


def test_a_deviation_printed_as_nothing_counts_as_half_a_digit(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "forecasting", "Weather", "aaren", 0.2, 0.2, horizon=96)
    assert only(tmp_path, "test.mse").published_margin == pytest.approx(0.01)


def test_one_seed_is_not_tested(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "classification", "Handwriting", model, 0.3)
    found = only(tmp_path, "test.accuracy")
    assert (found.outcome, found.p_value) == ("untested", None)


def test_published_events_stand_beside_ours_only_in_the_same_unit(
    tmp_path: Path, write_run: WriteRun
) -> None:
    facts = {"comparable": ["accuracy"], "comparable_reason": "the unit of the published times is not known"}
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "events", "mimic", model, 1.0, 1.0, 0.8, facts=facts)
    nll, rmse, accuracy = (only(tmp_path, f"test.{name}") for name in ("nll", "rmse", "accuracy"))
    assert not nll.published
    assert nll.remark == "the unit of the published times is not known"
    assert nll.published_margin == pytest.approx(0.14)  # a difference of log-likelihoods has no unit
    assert nll.margin == 0.05
    assert not rmse.published
    assert (rmse.margin, rmse.published_margin) == (None, None)
    assert accuracy.published["transformer"].mean == pytest.approx(0.8407)


def test_regenerated_data_is_called_so(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "rl", "hopper-medium-regen", "aaren", 60.0)
    found = only(tmp_path, "best.score")
    assert found.remark == "regenerated data"
    assert found.published["aaren"].mean == 80.86


def test_other_series_have_nothing_published_beside_them(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "forecasting", "traffic-20", "aaren", 0.5, 0.4, horizon=96)
    found = only(tmp_path, "test.mse")
    assert (found.published, found.published_margin) == ({}, None)
    assert found.remark == "not the series of the paper's Traffic"


def test_how_far_ours_is_from_the_published_mean(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "forecasting", "ETTh1", "aaren", 0.61, 0.4, horizon=96, profile="paper")
    found = only(tmp_path, "test.mse")
    assert found.deviations_off("aaren") == pytest.approx(2.0)
    assert found.deviations_off("transformer") is None


def test_touching_intervals_are_both_bold_and_others_one_sided() -> None:
    low, high = Summary(mean=0.48, deviation=0.02, count=5), Summary(mean=0.44, deviation=0.02, count=5)
    assert which_are_bold(low, high, is_lower_better=True) == (True, True)  # they touch at 0.46, in decimals
    high = Summary(mean=0.44, deviation=0.01, count=5)
    assert which_are_bold(low, high, is_lower_better=True) == (False, True)
    assert which_are_bold(low, high, is_lower_better=False) == (True, False)
    assert which_are_bold(Summary(mean=1.0, deviation=None, count=1), high, is_lower_better=True) == (
        False,
        False,
    )


def test_the_published_tables_follow_the_rule_for_bold_but_once() -> None:
    found = check_published()
    assert (found.pairs, found.both, found.transformer, found.aaren) == (107, 97, 7, 3)
    assert found.exceptions == ["ETTm1, 720, mae: 0.52 ± 0.01 and 0.56 ± 0.02"]
    assert len(published.PRINTED_ONE_SIDED) == 9
    assert found.both + found.transformer + found.aaren == found.pairs
    assert found.equivalent == 55


def test_nothing_is_averaged_in_percent_of_zero(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "events", "sin", model, 0.7, 0.0)
        write_run(tmp_path, "events", "mimic", model, 0.7, 2.0)
    found = [compare(row, metric("test.rmse")) for row in read_results(tmp_path).rows]
    average = average_difference(found)
    assert average is not None
    assert average.over_pairs.count == 1
    assert average_difference([one for one in found if one.key.dataset == "sin"]) is None


@pytest.mark.parametrize(
    ("setting", "dataset", "facts", "report", "margin"),
    [
        ("events", "sin", {}, "test.nll", 0.05),
        ("rl", "hopper-medium-regen", {}, "best.score", 5.0),
        ("classification", "Handwriting", {"test_cases": 850}, "test.accuracy", 0.01),
        ("classification", "SelfRegulationSCP2", {"test_cases": 180}, "test.accuracy", 3 / 180),
        ("forecasting", "traffic-20", {}, "test.mse", 0.015),
        ("forecasting", "traffic-20", {}, "test.mae", 0.008),
    ],
)
def test_margins_are_fixed(
    tmp_path: Path,
    write_run: WriteRun,
    setting: str,
    dataset: str,
    facts: dict[str, object],
    report: str,
    margin: float,
) -> None:
    for model in ("aaren", "transformer"):
        write_run(tmp_path, setting, dataset, model, 0.5, 0.4, facts=facts)
    assert only(tmp_path, report).margin == pytest.approx(margin)


def test_better_by_less_than_matters(tmp_path: Path, write_run: WriteRun) -> None:
    for seed, lead in enumerate((0.004, 0.005, 0.006)):
        write_run(tmp_path, "classification", "Handwriting", "aaren", 0.5 + lead, seed=seed)
        write_run(tmp_path, "classification", "Handwriting", "transformer", 0.5, seed=seed)
    assert only(tmp_path, "test.accuracy").judgement == "better, within the margin"
