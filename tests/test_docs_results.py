"""Figures of runs in the documentation are those of the committed records."""

import json
import re
import runpy
from pathlib import Path

import pytest

from aaren.files.marked import read_marked

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "docs_tables.py"))


@pytest.mark.parametrize(("page", "name"), SCRIPT["TABLES"])
def test_a_table_is_not_stale(page: str, name: str) -> None:
    shown = read_marked(ROOT / "docs" / page, *SCRIPT["marks"](name), option="docs_tables.py")
    made = SCRIPT["TABLES"][page, name]()
    assert shown == f"\n{made}\n", f"docs/{page} is stale: run `python benchmarks/docs_tables.py`"


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
