"""The forest plot: well-formed, complete, and true to the comparisons."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.lab.statistics import interval
from aaren.report.forest import dataset_interval, panels, picture
from aaren.report.page import write_report
from aaren.report.rows import read_results
from aaren.report.verdict import first_comparisons, pool_settings

WriteRun = Callable[..., Path]


def pair(root: Path, write_run: WriteRun, dataset: str, lead: float, **more: object) -> None:
    write_run(root, "forecasting", dataset, "aaren", 1.0 - lead, **more)
    write_run(root, "forecasting", dataset, "transformer", 1.0, **more)


def test_every_dataset_and_every_pooled_estimate_is_drawn(full_results: Path) -> None:
    pools = pool_settings(first_comparisons(read_results(full_results)))
    drawn = ET.fromstring(picture(pools))
    texts = ["".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for one in pools:
        assert one.pooled is not None
        assert f"all {len(one.by_dataset)} datasets" in texts
        assert set(one.by_dataset) <= set(texts)
    assert len(panels(pools)) == len(pools) == 4


def test_horizons_of_a_dataset_are_averaged_and_no_seed_is_lost(tmp_path: Path, write_run: WriteRun) -> None:
    for seed, (near, far) in enumerate([(0.03, 0.03), (0.03, 0.0), (0.06, 0.06)]):
        pair(tmp_path, write_run, "ETTh1", near, seed=seed, horizon=96)
        pair(tmp_path, write_run, "ETTh1", far, seed=seed, horizon=192)
    (one,) = pool_settings(first_comparisons(read_results(tmp_path)))
    seeds = interval([1.0, 0.5, 2.0])  # in margins of 3 %
    found = dataset_interval(one.comparisons)
    assert (found.mean, found.low, found.count) == (pytest.approx(seeds.mean), pytest.approx(seeds.low), 3)

    pair(tmp_path, write_run, "ETTh1", 0.03, seed=3, horizon=96)  # has no partner at the other horizon
    (one,) = pool_settings(first_comparisons(read_results(tmp_path)))
    found = dataset_interval(one.comparisons)
    assert (found.mean, found.count) == (pytest.approx((1.25 + 1.0) / 2), 3)
    rows = [row for row in one.comparisons if row.key.horizon == 96]
    assert dataset_interval(rows).count == 4
    assert ">7</text>" in picture([one])  # pairs of runs, of both horizons


def test_one_seed_has_a_hollow_dot_and_what_is_far_off_an_arrow(tmp_path: Path, write_run: WriteRun) -> None:
    pair(tmp_path, write_run, "ETTh1", 0.01, horizon=96)
    pair(tmp_path, write_run, "ETTh2", 0.9, horizon=96)
    drawn = picture(pool_settings(first_comparisons(read_results(tmp_path))))
    assert drawn.count("<circle") == drawn.count(' hollow"') == 1
    assert "+30.00" in drawn


def test_a_record_cannot_put_markup_into_the_figure(tmp_path: Path, write_run: WriteRun) -> None:
    pair(tmp_path, write_run, "<script>x", 0.01, horizon=96)
    write_report([tmp_path], tmp_path / "report")
    text = (tmp_path / "report" / "verdict.svg").read_text()
    ET.fromstring(text)
    assert "<script" not in text
