"""Which runs share a row: profiles, variants and seeds never mixed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.events import SETTING
from aaren.lab.records import collect
from aaren.report.rows import TODAY, Row, arrange, read_results

WriteRun = Callable[..., Path]


def rows_of(root: Path) -> list[Row]:
    return arrange(collect(root).records)


def test_profiles_and_changed_keys_stand_apart(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "forecasting", "ETTh1", "aaren", 0.5, 0.5, horizon=96)
    write_run(tmp_path, "forecasting", "ETTh1", "aaren", 0.4, 0.4, horizon=96, profile="paper")
    write_run(
        tmp_path,
        "forecasting",
        "ETTh1",
        "aaren",
        0.6,
        0.6,
        horizon=96,
        changed=("task.network.cross_attention", "engine.threads"),
        task={"network": {"cross_attention": "aaren"}},
    )
    keys = [row.key for row in rows_of(tmp_path)]
    assert [(key.profile, key.variant, key.name) for key in keys] == [
        ("paper", "", "ETTh1, 96"),
        ("cpu", "", "ETTh1, 96"),
        ("cpu", "cross_attention=aaren", "ETTh1, 96"),
    ]


def test_threads_are_no_variant(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.7, changed=("engine.threads",))
    assert [row.key.variant for row in rows_of(tmp_path)] == [""]


def test_rules_recipes_and_causal_models_are_variants(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "classification", "Handwriting", "aaren", 0.3)
    write_run(tmp_path, "classification", "Handwriting", "aaren", 0.2, cell={"rule": "clean"})
    write_run(tmp_path, "classification", "Handwriting", "aaren", 0.2, cell={"recipe": "adam-halving"})
    write_run(tmp_path, "classification", "Handwriting", "aaren-causal", 0.2)
    write_run(tmp_path, "classification", "Handwriting", "transformer-causal", 0.2)
    found = {row.key.variant: sorted(row.runs) for row in rows_of(tmp_path)}
    assert found == {
        "": ["aaren"],
        "rule=clean": ["aaren"],
        "recipe=adam-halving": ["aaren"],
        "embedding=causal": ["aaren", "transformer"],
    }


def test_of_two_runs_of_one_row_the_later_counts(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path / "a", "events", "sin", "aaren", 0.7, date="2026-01-02T00:00:00+00:00")
    write_run(tmp_path / "b", "events", "sin", "aaren", 0.6, date="2026-01-01T00:00:00+00:00")
    changed = {"changed": ("engine.threads",), "date": "2026-01-03T00:00:00+00:00"}
    (row,) = rows_of(tmp_path)
    assert row.values("aaren", "test.nll") == {0: 0.7}
    write_run(tmp_path / "a", "events", "sin", "aaren", 0.5, **changed)
    (row,) = rows_of(tmp_path)
    assert row.values("aaren", "test.nll") == {0: 0.5}


def test_datasets_come_in_the_order_of_the_paper(tmp_path: Path, write_run: WriteRun) -> None:
    for dataset in ("zebra", "taxi-tritpp", "wiki", "mimic"):
        write_run(tmp_path, "events", dataset, "aaren", 1.0)
    assert [row.key.dataset for row in rows_of(tmp_path)] == ["mimic", "wiki", "taxi-tritpp", "zebra"]


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.7, 1.2, float("nan"))
    assert rows_of(tmp_path)[0].values("aaren", "test.accuracy") == {}


def test_protocols_never_share_a_row(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.9, seed=0, protocol=1)
    new = {seed: 0.7 + seed / 100 for seed in range(1, 5)}
    for seed, value in new.items():
        write_run(tmp_path, "events", "sin", "aaren", value, seed=seed, protocol=99)
    newer, older = rows_of(tmp_path)
    assert (newer.key.protocol, newer.values("aaren", "test.nll")) == (99, new)
    assert (older.key.protocol, older.values("aaren", "test.nll")) == (1, {0: 0.9})


def test_data_of_another_checksum_is_another_row(tmp_path: Path, write_run: WriteRun) -> None:
    for seed, digest in enumerate("aaab"):
        data = {"ETTh1.csv": digest * 64}
        write_run(tmp_path, "forecasting", "ETTh1", "aaren", seed, horizon=96, seed=seed, data=data)
    rows = {row.key.name: row.values("aaren", "test.mse") for row in rows_of(tmp_path)}
    assert sorted(rows.values(), key=len) == [{3: 3.0}, {0: 0.0, 1: 1.0, 2: 2.0}]
    assert all(name.startswith("ETTh1, 96 (data ") for name in rows)


def test_a_row_is_superseded_once_the_newer_protocol_has_its_models(
    tmp_path: Path, write_run: WriteRun
) -> None:
    models = ("aaren", "transformer", "gru")
    for model in models:
        write_run(tmp_path, "events", "sin", model, 0.9, protocol=1)
    write_run(tmp_path, "events", "hawkes", "aaren", 0.9, protocol=1)
    write_run(tmp_path, "events", "sin", "aaren", 0.7, protocol=2)
    found = read_results(tmp_path)
    assert ([row.key.dataset for row in found.rows], found.superseded) == (["sin", "sin", "hawkes"], [])
    write_run(tmp_path, "events", "sin", "transformer", 0.7, protocol=2)
    found = read_results(tmp_path)
    shown = [(row.key.dataset, row.key.protocol, row.key.variant) for row in found.rows]
    assert shown == [
        ("sin", TODAY, ""),
        ("hawkes", 1, "protocol=1"),
    ]  # what is not superseded is set apart
    assert {run.cell["model"] for run in found.superseded} == set(models)


def test_a_cure_of_one_model_leaves_the_runs_of_all_others(
    tmp_path: Path, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SETTING, "protocols", {"cpu": 2, "cpu/gru": 3}, raising=False)
    for model, protocol in (("aaren", 2), ("transformer", 2), ("gru", 2)):
        write_run(tmp_path, "events", "sin", model, 0.9, protocol=protocol)
    shown = [(set(row.runs), row.key.variant) for row in read_results(tmp_path).rows]
    assert shown == [({"aaren", "transformer"}, ""), ({"gru"}, "protocol=2")]
    write_run(tmp_path, "events", "sin", "gru", 0.7, protocol=3)
    (row,) = [row for row in read_results(tmp_path).rows if not row.key.variant]
    assert row.values("gru", "test.nll") == {0: 0.7}
    assert set(row.runs) == {"aaren", "transformer", "gru"}
