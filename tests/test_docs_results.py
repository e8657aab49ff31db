"""Figures of runs in the documentation are those of the committed records."""

import json
import re
import statistics
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_gaps_to_the_true_hawkes_process():
    measured = {}
    for path in (ROOT / "results" / "events").glob("hawkes-*/record.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        measured[record["cell"]["model"]] = record["metrics"]["test"]["gap_to_truth"]
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    table = page.split("above the true process |")[1].split("\n\n")[0]
    shown = dict(re.findall(r"\| `([a-z-]+)` \| ([0-9.]+) \|", table))
    assert len(shown) >= 5
    assert shown == {model: f"{measured[model]:.3f}" for model in shown}


def test_gap_to_the_true_sin_process():
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"both models stay ([0-9.]+) above the truth", page)
    for path in (ROOT / "results" / "events").glob("sin-*-cpu-seed0-*/record.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["cell"]["model"] in ("aaren", "transformer") and not record["changed"]:
            assert f"{record['metrics']['test']['gap_to_truth']:.2f}" == shown


def test_where_patience_ended_sin():
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    pattern = r"Aaren after (\d+) epochs and the Transformer after (\d+), with the weights of epoch (\d+)"
    (shown,) = re.findall(pattern, page)
    found = []
    for model in ("aaren", "transformer"):
        (path,) = (ROOT / "results" / "events").glob(f"sin-{model}-paper-seed0-*/record.json")
        record = json.loads(path.read_text(encoding="utf-8"))
        best = record["best_update"] * record["epochs"] / record["updates"]
        found.append((f"{record['epochs']:.0f}", f"{best:.0f}", record["ended_by"]))
    assert found == [(shown[0], shown[2], "patience"), (shown[1], shown[2], "patience")]


def test_forecasts_at_the_published_size():
    page = (ROOT / "docs" / "forecasting.md").read_text(encoding="utf-8")
    table = page.split("| at the published size |")[1].split("\n\n")[0]
    shown = re.findall(r"\| `([a-z]+)` \| ([0-9.]+) \| [0-9.]+ \| ([0-9.]+) \| [0-9.]+ \| (\d+) \|", table)
    found = []
    for path in sorted((ROOT / "results" / "forecasting").glob("ETTh1-96-*-paper-seed0-*/record.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        test = record["metrics"]["test"]
        epochs = f"{record['epochs']:.0f}"
        found.append((record["cell"]["model"], f"{test['mse']:.3f}", f"{test['mae']:.3f}", epochs))
    assert shown == found


def test_losses_where_aaren_is_behind_in_forecasting():
    page = (ROOT / "docs" / "forecasting.md").read_text(encoding="utf-8")
    table = page.split("| 20 series of Traffic, horizon |")[1].split("\n\n")[0]
    shown = re.findall(r"^\| (\d+) \| (\d+) \| (.*) \|$", table, re.MULTILINE)
    assert len(shown) == 4
    for horizon, updates, figures in shown:
        found, losses, errors = [], [], []
        for model in ("aaren", "transformer"):
            folder = f"traffic_20-{horizon}-{model}-cpu-seed0-*"
            (path,) = (ROOT / "results" / "forecasting").glob(f"{folder}/record.json")
            record = json.loads(path.read_text(encoding="utf-8"))
            looks = (path.parent / "curve.jsonl").read_text(encoding="utf-8").splitlines()
            found.append(record["updates"])
            losses.append(f"{json.loads(looks[-1])['loss']:.3f}")
            errors.append(f"{record['metrics']['test']['mse']:.3f}")
        assert max(found) == int(updates)
        assert figures.split(" | ") == [*losses, *errors]


def test_accuracies_of_classification():
    accuracies = defaultdict(list)
    for path in (ROOT / "results" / "classification").glob("*/record.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        cell = record["cell"]
        if record["profile"] == "paper" and record["status"] == "finished":
            place = (cell["dataset"], cell["model"], cell["rule"], cell["recipe"])
            accuracies[place].append(100.0 * record["metrics"]["test"]["accuracy"])
    page = (ROOT / "docs" / "classification.md").read_text(encoding="utf-8")

    def shown(header: str, *, num_rows: int) -> list[tuple[str, list[str]]]:
        table = page.split(header)[1].split("\n\n")[0]
        rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
        assert len(rows) == num_rows
        return [(row[0], row[1:]) for row in rows]

    def figure(values: list[float]) -> str:
        if len(values) < 2:
            return f"{values[0]:.1f}" if values else "\N{EN DASH}"
        return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f} ({len(values)})"

    def recorded(dataset: str, places: list[tuple[str, str, str]]) -> list[str]:
        return [figure(accuracies[(dataset, *place)]) for place in places]

    pair, causal = ("aaren", "transformer"), ("aaren-causal", "transformer-causal")
    columns = [(model, rule, "radam-halving") for rule in ("protocol", "clean") for model in pair]
    for dataset, figures in shown("| accuracy by rule |", num_rows=6):
        assert figures == recorded(dataset, columns)
    columns = [(m, "protocol", "radam-halving") for m in (*causal, "minirocket", "dtw", "majority")]
    for dataset, figures in shown("| accuracy beside |", num_rows=6):
        assert figures == recorded(dataset, columns)
    recipes = ("adam-halving", "radam-halving", "radam-constant")
    columns = [(model, "protocol", recipe) for recipe in recipes for model in pair]
    for dataset, figures in shown("| accuracy by recipe |", num_rows=4):
        assert figures == recorded(dataset, columns)


def test_the_run_that_decided_the_length_of_the_cpu_profile():
    page = (ROOT / "docs" / "rl.md").read_text(encoding="utf-8")
    shown = re.findall(r"scores (\d+) at 1,200 updates, (\d+) at 1,800 and (\d+) at 2,400", page)
    (path,) = (
        path
        for path in (ROOT / "results" / "rl").glob("halfcheetah_medium_regen-aaren-*/record.json")
        if json.loads(path.read_text(encoding="utf-8"))["updates"] == 3000
    )
    lines = (path.parent / "curve.jsonl").read_text(encoding="utf-8").splitlines()
    curve = {look["update"]: look["validation"]["score"] for look in map(json.loads, lines)}
    assert shown == [tuple(f"{curve[update]:.0f}" for update in (1200, 1800, 2400))]


def test_scores_by_the_return_that_was_asked_for():
    page = (ROOT / "docs" / "rl.md").read_text(encoding="utf-8")
    table = page.split("| regenerated data | `--model` |")[1].split("\n\n")[0]
    shown = re.findall(r"\| ([a-z0-9-]+) \| `([a-z]+)` \| ([-0-9| ]+) \|", table)
    assert len(shown) == 16
    for dataset, model, scores in shown:
        folder = f"{dataset.replace('-', '_')}_regen-{model}-cpu-seed0-*"
        (path,) = (ROOT / "results" / "rl").glob(f"{folder}/sweep-target_scale.json")
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        assert scores.split(" | ") == [f"{row['metrics']['score']:.0f}" for row in rows]


def test_scores_by_what_is_seen_while_acting():
    page = (ROOT / "docs" / "rl.md").read_text(encoding="utf-8")
    table = page.split("| seen while acting | `--model` |")[1].split("\n\n")[0]
    shown = re.findall(r"\| ([a-z0-9-]+) \| `([a-z]+)` \| ([-0-9| ]+) \|", table)
    assert len(shown) == 4
    results = ROOT / "results" / "rl"
    for dataset, model, scores in shown:
        name = f"{dataset.replace('-', '_')}_regen-{model}"
        (sweep,) = results.glob(f"{name}-cpu-seed0-*/sweep-context.json")
        (long,) = results.glob(f"{name}-long-cpu-seed0-*/record.json")
        found = [row["metrics"]["score"] for row in json.loads(sweep.read_text(encoding="utf-8"))["rows"]]
        found.append(json.loads(long.read_text(encoding="utf-8"))["metrics"]["test"]["score"])
        assert scores.split(" | ") == [f"{score:.0f}" for score in found]


def test_scores_at_the_published_size():
    page = (ROOT / "docs" / "rl.md").read_text(encoding="utf-8")
    table = page.split("| at the published size |")[1].split("\n\n")[0]
    shown = re.findall(r"\| `([a-z]+)` \| ([0-9| ]+) \|", table)
    assert [model for model, _ in shown] == ["aaren", "transformer"]
    for model, figures in shown:
        (path,) = (ROOT / "results" / "rl").glob(f"hopper_medium_regen-{model}-paper-seed0-*/record.json")
        record = json.loads(path.read_text(encoding="utf-8"))
        looks = (path.parent / "curve.jsonl").read_text(encoding="utf-8").splitlines()
        scores = [json.loads(look)["validation"]["score"] for look in looks]
        minutes = sum(record["seconds"][account] for account in ("training", "looking", "saving")) / 60.0
        found = [minutes, *scores, record["metrics"]["test"]["score"]]
        assert figures.split(" | ") == [f"{value:.0f}" for value in found]


def test_scores_of_cloning():
    page = (ROOT / "docs" / "rl.md").read_text(encoding="utf-8")
    shown = re.findall(r"no\s+return at all, scores (\d+) on the first and (\d+) on the second", page)
    found = []
    for robot in ("hopper", "walker2d"):
        folder = f"{robot}_medium_expert_regen-bc-cpu-seed0-*"
        (path,) = (ROOT / "results" / "rl").glob(f"{folder}/record.json")
        record = json.loads(path.read_text(encoding="utf-8"))
        found.append(f"{record['metrics']['test']['score']:.0f}")
    assert shown == [tuple(found)]
