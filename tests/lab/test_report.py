"""From records to rows, tables, figures, the verdict and the page: made-up numbers, and committed records."""

import base64
import json
import random
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aaren.errors import ConfigError, DataError
from aaren.lab import page
from aaren.lab.comparison import Numbers, compare_rows, first_comparisons, which_are_bold
from aaren.lab.figures import forest, setting_figures
from aaren.lab.names import ADAM, EARLIER_ADAM, RADAM, metric
from aaren.lab.page import render_markdown, render_page, render_section, write_readme, write_report
from aaren.lab.rows import read_results
from aaren.lab.tables import baseline_table, comparison_table, episodes_table, runs_table
from aaren.lab.verdict import pool_settings, pooled_table, reference_line, verdict

WriteRun = Callable[..., Path]
ROOT = Path(__file__).parents[2]


def pairs(
    root: Path, write_run: WriteRun, *differences: float, dataset: str = "Handwriting", **more: object
) -> None:
    for seed, difference in enumerate(differences):
        for model, lead in (("aaren", difference), ("transformer", 0.0)):
            write_run(root, "classification", dataset, model, 0.5 + lead, **{"seed": seed, **more})


# Rows: which runs share one.


def test_profiles_variants_protocols_and_data_never_share_a_row(tmp_path: Path, write_run: WriteRun) -> None:
    def write(model: str = "aaren", **more: object) -> None:
        write_run(tmp_path, "events", "sin", model, 0.7, **more)

    write()
    write(profile="paper")
    write(cell={"rule": "clean"})
    write(changed=["task.network.width"], config={"task": {"network": {"width": 8}}})
    write(changed=["engine.threads"], seed=1)
    write(data={"a": "1"}, seed=2)
    write("transformer", protocol=1)
    keys = [row.key for row in read_results(tmp_path).rows]
    assert [(key.profile, key.variant, key.name) for key in keys] == [
        ("paper", "", "sin"),
        ("cpu", "", "sin (data none)"),
        ("cpu", "", f"sin (data {keys[2].data})"),
        ("cpu", "protocol=1", "sin"),
        ("cpu", "rule=clean", "sin"),
        ("cpu", "width=8", "sin"),
    ]


def test_a_newer_protocol_replaces_an_older_one_once_it_has_both_models(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "events", "sin", model, 0.7, protocol=1)
    write_run(tmp_path, "events", "sin", "aaren", 0.7)
    assert [row.key.variant for row in read_results(tmp_path).rows] == ["", "protocol=1"]
    write_run(tmp_path, "events", "sin", "transformer", 0.7)
    results = read_results(tmp_path)
    assert ([row.key.variant for row in results.rows], results.superseded) == ([""], 2)


def test_a_setting_that_is_not_installed_is_called_by_its_name(tmp_path: Path, write_run: WriteRun) -> None:
    folder = write_run(tmp_path, "events", "sin", "aaren", 0.7)
    path = folder / "record.json"
    path.write_text(path.read_text().replace('"setting": "events"', '"setting": "no.such"'))
    assert "## no.such" in render_markdown(read_results(tmp_path))


# Comparisons and margins.


@pytest.mark.parametrize(
    ("levels", "margin"),
    [({"poisson": 1.1, "markov": 0.9}, 0.02), ({"poisson": 9.0}, 0.05), ({"poisson": 0.6}, None), ({}, None)],
)
def test_the_margin_of_events_is_a_tenth_of_what_memory_is_worth(
    levels: dict[str, float], margin: float | None, tmp_path: Path, write_run: WriteRun
) -> None:
    for model, level in {"aaren": 0.7, "transformer": 0.7, **levels}.items():
        profile = "paper" if model in ("aaren", "transformer") else "cpu"  # baselines have no size
        write_run(tmp_path, "events", "sin", model, level, profile=profile)
    (row,) = first_comparisons(read_results(tmp_path))
    assert row.margin == (None if margin is None else pytest.approx(margin))


def test_the_margins_of_plan_md_are_those_of_the_committed_records() -> None:
    text = (ROOT / "results" / "plan.md").read_text(encoding="utf-8")
    planned = {name.lower(): float(value) for name, value in re.findall(r"(\w+) (0\.0\d\d)[,.]", text)}
    results = read_results(ROOT / "results")
    rows = compare_rows(results, "events", "cpu", "", metric("test.nll"))
    margins = {one.key.dataset.partition("-")[0]: one.margin for one in rows if one.margin}
    assert len(planned) == 7
    assert margins == pytest.approx(planned, abs=1e-3)  # printed with three digits


def test_adam_and_radam_have_rows_of_their_own_and_new_seeds_count_once_complete(
    tmp_path: Path, write_run: WriteRun
) -> None:
    adam = {"cell": {"recipe": "adam-halving"}}
    pairs(tmp_path, write_run, 0.1, 0.1, 0.1)

    def counted() -> set[str]:
        return {one.key.group for one in first_comparisons(read_results(tmp_path))}

    assert counted() == {RADAM}
    pairs(tmp_path, write_run, 0.0, **adam)
    assert counted() == {EARLIER_ADAM}
    for seed in range(5, 10):
        assert counted() == {EARLIER_ADAM}
        pairs(tmp_path, write_run, 0.0, seed=seed, **adam)
    assert counted() == {ADAM}
    rows = read_results(tmp_path).select("classification", "cpu", "")
    assert [row.key.name for row in rows] == [
        f"Handwriting, {group}" for group in (ADAM, EARLIER_ADAM, RADAM)
    ]


def test_the_seed_used_for_tuning_is_shown_and_not_counted(full_results: Path) -> None:
    results = read_results(full_results)
    (one,) = [one for one in first_comparisons(results) if one.key.dataset.startswith("halfcheetah")]
    assert set(one.differences) == {1, 2}
    assert "halfcheetah-medium-expert-regen, seed 0, used for tuning" in render_markdown(results)


def test_a_row_at_two_profiles_counts_once_where_it_has_most_seeds(
    tmp_path: Path, write_run: WriteRun
) -> None:
    pairs(tmp_path, write_run, 0.001, 0.002, 0.0)
    pairs(tmp_path, write_run, 0.0, profile="paper")
    pairs(tmp_path, write_run, 0.0, profile="smoke", dataset="Heartbeat")
    (one,) = first_comparisons(read_results(tmp_path))
    assert (one.key.profile, len(one.differences)) == ("cpu", 3)


def test_bold_is_the_papers_rule() -> None:
    one, near, far = (Numbers(mean=mean, deviation=0.01, count=5) for mean in (0.44, 0.46, 0.47))
    assert which_are_bold(one, near, is_lower_better=True) == (True, True)
    assert which_are_bold(one, far, is_lower_better=True) == (True, False)
    assert which_are_bold(one, far, is_lower_better=False) == (False, True)


# Tables.


def test_a_table_shows_both_models_their_difference_and_the_published_numbers(full_results: Path) -> None:
    results = read_results(full_results)
    table = comparison_table(results, "forecasting", "cpu", metric("test.mse"))
    lines = table.to_markdown().splitlines()
    assert lines[0] == "**MSE**"
    row = next(line for line in lines if line.startswith("| ETTh1, 96 |"))
    number = r"\*\*0\.\d{3} ± 0\.\d{3}\*\*"
    assert re.fullmatch(
        rf"\| ETTh1, 96 \| {number} \| {number} \| 3 \| [+−]0\.\d{{3}} \[.*\] \| ± 0\.\d{{3}} \| .* \| "
        r"0\.53 ± 0\.04 \| 0\.54 ± 0\.01 \|",
        row,
    )
    assert next(line for line in lines if line.startswith("| ETTh2, 96 |")).count("–") == 5
    assert any("traffic-20, 96: not the series of the paper's Traffic." in line for line in lines)
    assert (
        "changed"
        in comparison_table(results, "classification", "paper", metric("test.accuracy"), is_varied=True).frame
    )


def test_baselines_episodes_and_runs_have_tables(full_results: Path) -> None:
    results = read_results(full_results)
    baselines = baseline_table(results, "events", "cpu", metric("test.nll")).frame
    assert list(baselines) == ["dataset", "Aaren", "Transformer", "Poisson", "best"]
    assert episodes_table(results, "cpu").frame["episodes"].tolist() == ["20", "10", "30"]
    runs = runs_table(results, "rl").frame
    assert len(runs) == 2 * (2 * 3 + 1)
    assert set(runs["code"]) == {"stale"}
    assert reference_line(results).startswith("Simple references are ahead of both models in ")


# Figures.


def test_the_forest_plot_is_legible_at_the_width_of_a_readme() -> None:
    figure = forest(pool_settings(first_comparisons(read_results(ROOT / "results"))))
    root = ElementTree.fromstring(figure)
    assert float(root.get("width").removesuffix("pt")) <= 620  # points: 826 pixels, what a README shows
    sizes = [100.0 * float(scale) for scale in re.findall(r"scale\((0\.\d+) -", figure)]  # of texts, points
    assert len(sizes) > 24
    assert min(sizes) >= 9.0


def test_every_setting_has_its_figures_of_what_was_kept(full_results: Path) -> None:
    results = read_results(full_results)
    titles = {
        setting: [title for title, _, _ in setting_figures(results, setting)]
        for setting in results.settings()
    }
    assert titles == {
        "forecasting": ["Forecasts against truth", "Learning curves"],
        "classification": ["How early the class is known"],
        "events": ["Calibration of the next gap", "Learning curves"],
        "rl": [],
    }


# The verdict.


def test_the_verdict_has_four_lines_with_at_most_one_number_a_sentence(full_results: Path) -> None:
    for folder in (full_results, ROOT / "results"):
        results = read_results(folder)
        lines = verdict(results)
        assert len(lines) == 4
        for sentence in re.split(r"[.:;] ", " ".join(lines)):
            assert len(re.findall(r"(?<![\w-])\d+(?!\w)", sentence)) <= 1, sentence
    scope = verdict(read_results(full_results))[3]
    assert "Parts or remakes stand in for 4 datasets: all of RL, Traffic and uber." in scope
    assert "Made by our own generators: sin." in scope


def test_what_the_pooled_estimates_say(tmp_path: Path, write_run: WriteRun) -> None:
    for dataset in ("Handwriting", "JapaneseVowels", "Heartbeat"):
        pairs(tmp_path, write_run, 0.001, 0.002, 0.0, dataset=dataset)
    results = read_results(tmp_path)
    assert verdict(results)[:3] == [
        "Pooled over datasets: better, within the margin in Classification.",
        "The prediction interval for a dataset that was not run lies inside the margin in Classification.",
        "Row by row there are 3 comparisons. 3 are inside the margin. Aaren is better in 0. It is worse in "
        "0. 0 are open.",
    ]
    frame = pooled_table(pool_settings(first_comparisons(results))).frame
    assert frame["pairs of runs"].tolist() == ["9"]
    assert frame["a new dataset [90 %]"].str.startswith("[").all()


def test_nothing_is_decided_by_one_seed(tmp_path: Path, write_run: WriteRun) -> None:
    assert verdict(read_results(tmp_path)) == ["No row has both models yet."]
    pairs(tmp_path, write_run, 0.01)
    lines = verdict(read_results(tmp_path))
    assert lines[:2] == [
        "Pooled over datasets: not tested in Classification.",
        "Too few datasets to predict another.",
    ]
    assert "1 cannot be tested: one seed or no margin." in lines[2]


# The page.


def test_the_page_is_whole_static_and_small(full_results: Path, tmp_path: Path) -> None:
    results, paths = write_report([full_results], tmp_path / "report")
    assert [path.name for path in paths] == ["index.html", "tables.md", "verdict.svg"]
    text = paths[0].read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    assert not re.search(r"<script|<link|src='http", text)
    images = re.findall(r"data:image/png;base64,([^']*)'", text)
    assert len(images) == 5
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)
    for name in ("cut-off", "foreign"):
        assert f"Left out: {name}/record.json: " in text
    again = write_report([full_results], tmp_path / "again")[1]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
    assert len(results.problems) == 2


def test_the_committed_report_is_that_of_the_committed_records() -> None:
    results, report = read_results(ROOT / "results"), ROOT / "results" / "report"
    cure = "run: aaren report results -o results/report --readme README.md"
    assert (report / "tables.md").read_text(encoding="utf-8") == render_markdown(results), cure
    assert (report / "index.html").stat().st_size < 1_000_000
    assert page.BEGIN + "\n\n" + render_section(results) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_only_the_marked_section_of_a_readme_is_written(full_results: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    assert write_readme([full_results], readme)
    assert not write_readme([full_results], readme)
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "](results/report/verdict.svg)" in text


def test_nothing_to_report_and_a_file_in_the_way(tmp_path: Path, full_results: Path) -> None:
    with pytest.raises(DataError, match="no finished run below"):
        write_report([tmp_path], tmp_path / "report")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="-o needs a folder"):
        write_report([full_results], tmp_path / "file")


# Files that anybody could have written: a report leaves out what it cannot use, and names it.

DEEP, HUGE = "[" * 100_000 + "]" * 100_000, "9" * 5_000
VALUES = [
    None,
    True,
    -1,
    0,
    2**62,
    1e308,
    -1e308,
    5e-324,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    {"a": [None]},
    "1e999",
]


@pytest.mark.parametrize("text", [DEEP, HUGE, '{"a": ' * 100_000, "1e999", "NaN", "\ud800", "\0", '"', "{}"])
@pytest.mark.parametrize("name", ["record.json", "runs.jsonl"])
def test_one_hostile_file_stops_nothing(name: str, text: str, tmp_path: Path, write_run: WriteRun) -> None:
    pairs(tmp_path, write_run, 0.0, 0.1)
    bad = write_run(tmp_path, "rl", "hopper-medium", "aaren", 50.0)
    (bad / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    results = read_results(tmp_path)
    assert "Handwriting" in render_markdown(results)
    assert len(results.problems) == (name == "record.json")  # a line without its end is none yet


def test_text_stays_text(tmp_path: Path, write_run: WriteRun) -> None:
    name = "<img src=x>|[a](javascript:b)"
    for model in ("aaren", "transformer"):
        folder = write_run(tmp_path, "events", "odd", model, 0.7)
        path = folder / "record.json"
        path.write_text(path.read_text().replace('"dataset": "odd"', f'"dataset": "{name}"'))
    half = write_run(tmp_path, "events", "half", "aaren", 0.7) / "record.json"
    half.write_text(half.read_text().replace('"half"', '"\\ud800"'))
    results, paths = write_report([tmp_path], tmp_path / "report")
    assert [problem.reason for problem in results.problems] == ["it holds half a character."]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert "<img src=x" not in text
        assert path.suffix != ".md" or "](javascript" not in text


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_changed_values_stop_nothing(seed: int, full_results: Path, tmp_path: Path) -> None:
    rng = random.Random(seed)
    records = [path for path in sorted(full_results.rglob("record.json")) if "cut" not in str(path)]
    for number in range(12):
        root = tmp_path / str(number)
        for path in rng.sample(records, 12):
            content = json.loads(path.read_text())
            for _ in range(2):
                (*inside, last), place = rng.choice([one for one in places(content) if one]), content
                for key in inside:
                    place = place[key]
                place[last] = rng.choice(VALUES)
            folder = root / path.parent.relative_to(full_results)
            folder.mkdir(parents=True)
            (folder / "record.json").write_text(json.dumps(content))
        results = read_results(root)
        if results.rows:  # else `aaren report` says so
            render_markdown(results)
            render_page(results, forest(pool_settings(first_comparisons(results))))
