"""Tables: what is shown, what is a gap, what is bold, and both ways of writing them."""

import json
from collections.abc import Callable
from pathlib import Path

from aaren.report.names import metric
from aaren.report.rows import read_results
from aaren.report.tables import (
    baseline_table,
    comparison_table,
    data_table,
    machine_table,
    overview_table,
    runs_table,
    samples_table,
    work_table,
)
from aaren.table import Cell, Column, Table, to_markdown

WriteRun = Callable[..., Path]


def texts(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[cell.text for cell in row] for row in table.rows]


def test_both_models_beside_the_published_numbers(full_results: Path) -> None:
    table = comparison_table(read_results(full_results), "forecasting", "cpu", "", metric("test.mse"))
    assert table is not None
    heads = [(column.group, column.label) for column in table.columns]
    assert heads[-2:] == [("published", "Aaren"), ("published", "Transformer")]
    first = texts(table)[0]
    assert first[0] == "ETTh1, 96"
    assert first[-2:] == ["0.53 ± 0.04", "0.54 ± 0.01"]
    assert (sum(table.is_dim), len(table.rows)) == (32 - 9, 32)
    gap = next(row for row, is_dim in zip(texts(table), table.is_dim, strict=True) if is_dim)
    assert gap == ["ETTh1, 720", *["–"] * 6, "not run", "0.67 ± 0.05", "0.70 ± 0.05"]


def test_one_seed_has_no_deviation_no_interval_and_no_bold(full_results: Path) -> None:
    table = comparison_table(read_results(full_results), "forecasting", "cpu", "", metric("test.mse"))
    row = next(row for row in table.rows if row[0].text == "ETTh1, 336")
    assert "±" not in row[1].text
    assert not row[1].is_bold
    assert row[7].text == "one seed"


def test_changed_rows_stand_apart_with_what_was_changed(full_results: Path) -> None:
    results = read_results(full_results)
    table = comparison_table(results, "forecasting", "cpu", None, metric("test.mse"))
    assert [row[:2] for row in texts(table)] == [["ETTh1, 96", "cross_attention=aaren"]]
    clean = comparison_table(results, "classification", "paper", None, metric("test.accuracy"))
    assert {row[1] for row in texts(clean)} == {"rule=clean"}


def test_rl_says_regenerated_data_in_its_head(full_results: Path) -> None:
    table = comparison_table(read_results(full_results), "rl", "cpu", "", metric("best.score"))
    assert table is not None
    assert table.columns[-1].group == "published, on D4RL; ours: regenerated data"
    assert table.rows[0][0].note == "regenerated data"


def test_events_give_the_reason_for_every_missing_published_number(full_results: Path) -> None:
    table = comparison_table(read_results(full_results), "events", "cpu", "", metric("test.nll"))
    assert table is not None
    assert "Nothing published beside mimic, uber-sample: the unit is not known." in table.notes
    by_name = {row[0].text: row for row in table.rows}
    assert by_name["mimic"][-1].text == "–"
    assert by_name["sin"][-1].text == "0.68 ± 0.05"
    assert by_name["uber-sample"][0].note == "stands for uber"


def test_learned_models_that_lose_to_a_reference_are_shown_losing(full_results: Path) -> None:
    table = baseline_table(read_results(full_results), "forecasting", "cpu", metric("test.mse"))
    assert table is not None
    assert [column.label for column in table.columns][1:5] == ["Aaren", "Transformer", "last value", "linear"]
    row = table.rows[0]
    assert [cell.is_bold for cell in row[1:5]] == [False, False, False, True]
    assert row[-1].text == "linear: both lose to it"


def test_far_from_the_paper_at_its_own_profile_is_said(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "classification", "JapaneseVowels", model, 0.90, profile="paper")
    table = comparison_table(read_results(tmp_path), "classification", "paper", "", metric("test.accuracy"))
    row = next(row for row in table.rows if row[0].text == "JapaneseVowels")
    assert row[-2].note == "ours −8.9 standard deviations off"


def test_other_data_is_not_measured_in_published_deviations(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "rl", "hopper-medium-regen", model, 10.0, 10.0, 10.0, 300.0, profile="paper")
    table = comparison_table(read_results(tmp_path), "rl", "paper", "", metric("best.score"))
    row = next(row for row in table.rows if row[0].text == "hopper-medium-regen")
    assert row[-1].text == "80.18 ± 5.85"
    assert row[-1].note == row[-2].note == ""


def test_the_overview_has_a_line_per_setting_profile_variant_and_number(full_results: Path) -> None:
    table = overview_table(read_results(full_results))
    lines = [(f"{row[0].text} {row[0].note}".strip(), row[1].text, row[2].text) for row in table.rows]
    assert ("Forecasting, cpu", "MSE", "33") in lines
    assert ("Classification, paper rule=clean", "accuracy, %", "15") in lines
    assert ("Events, cpu", "RMSE, in %", "9") in lines
    assert ("RL, cpu", "score, best evaluation", "6") in lines
    assert not any("return" in number for _, number, _ in lines)


def test_every_run_is_listed_with_its_command(full_results: Path) -> None:
    results = read_results(full_results)
    table = runs_table(results, "forecasting")
    assert len(table.rows) == 3 * 2 * 11 + 18 + 1
    assert table.rows[0][-1].text.startswith("aaren train forecasting ETTh1 --model aaren --profile cpu")
    assert texts(data_table(results))[0] == ["ETTh1.csv", "0" * 64, "28"]
    assert texts(machine_table(results))[0][:3] == ["a processor", "2", "8"]
    assert texts(work_table(results))[0][:5] == ["Time-series forecasting", "cpu", "85", "3", "5"]


def test_markdown_keeps_its_columns() -> None:
    table = Table(name="t", title="a < b", columns=[Column(label="x|y", kind="text"), Column(label="n")])
    table.add(Cell(text="<b>"), Cell(text="1|2", is_bold=True, note="of 3"))
    assert to_markdown(table).splitlines() == [
        "**a &lt; b**",
        "",
        "| x\\|y | n |",
        "| :-- | --: |",
        "| &lt;b&gt; | **1\\|2** (of 3) |",
    ]


def test_distance_to_the_true_process_is_shown_for_every_model(tmp_path: Path, write_run: WriteRun) -> None:
    for model, gap in (("aaren", 0.09), ("transformer", 0.08), ("gru", 0.02), ("aaren-decay", 0.01)):
        write_run(
            tmp_path,
            "events",
            "hawkes",
            model,
            1.0,
            cell={"rule": "clean"},
            changed=("task.censoring", "task.selection"),
            task={"censoring": "none", "selection": "nll"},
            test={"gap_to_truth": gap},
        )
    table = baseline_table(read_results(tmp_path), "events", "cpu", metric("test.gap_to_truth"))
    assert texts(table) == [
        ["hawkes", "rule=clean, selection=nll", "0.090", "0.080", "0.010", "0.020", "Aaren, decay"]
    ]


def test_a_reference_beats_nobody_where_nobody_was_run(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "forecasting", "ETTh1", "linear", 0.4, 0.4, horizon=96)
    table = baseline_table(read_results(tmp_path), "forecasting", "cpu", metric("test.mse"))
    assert texts(table)[0][-1] == "linear"
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "forecasting", "ETTh1", model, 0.5, 0.5, horizon=96)
    table = baseline_table(read_results(tmp_path), "forecasting", "cpu", metric("test.mse"))
    assert texts(table)[0][-1] == "linear: both lose to it"


def test_returns_are_shown_where_there_is_no_score(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "rl", "hopper-medium-regen", model, 50.0, 50.0, 50.0, 1500.0)
        write_run(tmp_path, "rl", "cartpole", model, test={"return": 200.0})
    table = comparison_table(read_results(tmp_path), "rl", "cpu", "", metric("test.return"))
    assert [row[:2] for row in texts(table)] == [["cartpole", "200.0"]]


def test_a_users_own_number_goes_the_way_its_task_says(tmp_path: Path, write_run: WriteRun) -> None:
    for model, f1 in (("aaren", 0.9), ("transformer", 0.5)):
        for seed in range(3):
            folder = write_run(tmp_path, "events", "mine", model, seed=seed, test={"f1": f1 + 0.01 * seed})
            path = folder / "record.json"
            own = {"setting": "mine", "reports": ["test.f1"], "higher_is_better": ["test.f1"]}
            path.write_text(json.dumps(json.loads(path.read_text()) | own))
    results = read_results(tmp_path)
    (number,) = results.metrics("mine")
    table = comparison_table(results, "mine", "cpu", "", number)
    assert [cell.is_bold for cell in table.rows[0][1:3]] == [True, False]


def test_held_out_cases_are_not_called_test(tmp_path: Path, write_run: WriteRun) -> None:
    for dataset, ours in (("heartbeat-train", 0.9), ("Handwriting", 0.5), ("JapaneseVowels", 0.5)):
        for model, accuracy in (("aaren", ours), ("transformer", 0.5)):
            write_run(tmp_path, "classification", dataset, model, accuracy)
    results = read_results(tmp_path)
    table = comparison_table(results, "classification", "cpu", "", metric("test.accuracy"))
    row = next(row for row in table.rows if row[0].text == "heartbeat-train")
    assert row[0].note == "Heartbeat, held-out part of TRAIN"
    assert [cell.text for cell in row[5:]] == ["± 1.00", "–", "one seed", "–", "–"]  # nothing published
    assert any("tested on a held-out part of TRAIN" in note for note in table.notes)
    assert "+0.00" in texts(overview_table(results))[0][3]  # and no part of the average


def test_policies_are_compared_episode_by_episode(full_results: Path) -> None:
    table = samples_table(read_results(full_results), "rl", "cpu")
    assert table is not None
    first = [cell.text for cell in table.rows[0]]
    assert first[:4] == ["halfcheetah-medium-regen", "", "3", "30"]
    assert all("[" in text for text in first[4:])
    assert samples_table(read_results(full_results), "rl", "paper") is None
