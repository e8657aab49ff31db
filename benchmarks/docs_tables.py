"""Write the tables in the documentation from the committed records: python benchmarks/docs_tables.py.

A table stands between two marks with its name; a test compares what stands there with what is made here.
Figures within a paragraph are not rewritten: `SENTENCES` makes them, and a test looks for them on their page.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

import classifier
import defaults
import forecaster
import live_forecaster
import mixers
import paths
import policy_estimator
import pool_soak
import precision
import startup
from aaren.bench import pool, scan, stream_view, train
from aaren.bench.publish import Benchmark, page_text
from aaren.bench.record import read_record
from aaren.engine.record import RunRecord
from aaren.engine.setting import find_setting
from aaren.files.marked import write_marked
from aaren.lab import published
from aaren.lab.records import collect, wall_seconds

ROOT = Path(__file__).parents[1]
PAIR = ("aaren", "transformer")


def marks(name: str) -> tuple[str, str]:
    """Return the lines above and below a table."""
    return f"<!-- begin: {name}; written by benchmarks/docs_tables.py -->\n", f"<!-- end: {name} -->"


def benchmark_tables(benchmark: Benchmark[Any]) -> str:
    """Show the committed record of a benchmark."""
    return page_text(benchmark, read_record(_bench(benchmark.kind), kind=benchmark.kind))


def measured() -> str:
    """Show every target of the main benchmarks that was measured."""
    rows = []
    for module in (scan, stream_view, precision, train):
        for target in module.targets(read_record(_bench(module.BENCHMARK.kind))):
            if target.measured is not None:
                rows.append([target.name, target.wanted, target.measured, target.verdict])
    return _table(["", "wanted", "measured", ""], ["---"] * 4, rows)


def numbers() -> str:
    """Say in three lines what the main benchmarks measured, for README."""
    found = {
        target.name: str(target.measured)
        for module in (scan, stream_view)
        for target in module.targets(read_record(_bench(module.BENCHMARK.kind)))
    }
    short, long = (found[f"causal SDPA / fused, t = {t}"] for t in ("1,024", "8,192"))
    sizes = found["width 512: folded Aaren, bytes of state, token 1,000,000 and token 1,000"]
    size = sizes.partition(" and ")[0]
    slower = found["width 512: cumulative time, Transformer / folded Aaren, at 32,768 tokens"]
    errors = _forecasts()
    lower = (errors["base"] < errors["linear-96"]).sum()
    return "\n".join(
        [
            f"- **Training**: forward and backward {short} faster than causal attention over 1,024 items, "
            f"{long} over 8,192, on two CPU cores.",
            f"- **Streams**: the state takes {size}, after a thousand tokens and after "
            f"a million; 32,768 tokens take a Transformer with its cache {slower} the time (width 512).",
            "- **Forecasts**: `AarenForecaster` is a linear model on the last 336 rows in closed form; its "
            f"squared error is below that of one on 96 rows in {lower} of {len(errors)} rows of the field's "
            "benchmarks.",
        ]
    )


def _forecasts() -> pd.DataFrame:
    """Return the squared errors of the forecasters by horizon and set, a column for each."""
    rows = pd.DataFrame(_read(_bench("forecaster"))["measurements"]).dropna(subset="mse")
    return rows.pivot_table(index=["horizon", "dataset"], columns="contender", values="mse", sort=False)


def which_classifier() -> str:
    """Show the classifiers set by set, means over seeds, beside the published numbers."""
    record = read_record(_bench("classifier"))
    means, rows = classifier.seed_means(record), pd.DataFrame(record.measurements)
    names = (*classifier.OURS, *classifier.PEERS)
    contenders = [name for name in names if classifier.common(means, name)]
    table = []
    for name in sorted(means.loc["Aaren"].index):
        cells = [classifier.average(means, one, "accuracy_1.00", [name]) for one in contenders]
        known = [published.lookup("classification", name, None, "accuracy", model) for model in PAIR]
        cells += [None if cell is None else cell.mean for cell in known]
        table.append([name, *("-" if cell is None else f"{100 * cell:.1f}" for cell in cells)])
    for label, key, scale, unit in (
        ("fit, CPU", "fit_cpu_seconds", 1.0, "s"),
        ("a new sample, CPU", "sample_cpu_seconds", 1e6, "µs"),
        ("state of a stream", "state_bytes", 1e-3, "kB"),
    ):
        medians = scale * rows.groupby("contender")[key].median().reindex(contenders)
        costs = ("-" if math.isnan(median) else f"{median:,.1f} {unit}" for median in medians)
        table.append([label, *costs, "", ""])
    head = ["accuracy, %", *contenders, "published Aaren", "published Transformer"]
    return _table(head, ["---"] + ["--:"] * (len(contenders) + 2), table)


def learned_scores() -> str:
    """Show what learned scores add to the features of the default classifier."""
    rows = _read(_bench("learned-scores"))["rows"]
    names = {
        "equal": "equal scores, ridge",
        "trained": "the same, trained further",
        "learned": "the same, scores learned too",
    }
    table = [[label, *(f"{100 * row[name]:.1f}" for row in rows)] for name, label in names.items()]
    head = ["", *(f"{row['dataset']} ({row['cases']} cases)" for row in rows)]
    return _table(head, ["---"] + ["--:"] * len(rows), table)


def which_policy() -> str:
    """Show the policies' returns, the cost of a fit and of an action."""
    rows = _read(_bench("policy-estimator"))["measurements"]
    table = []
    for name in dict.fromkeys(row["environment"] for row in rows):
        ours, clone, data = (
            [row for row in rows if (row["environment"], row["contender"]) == (name, one)]
            for one in ("AarenPolicy", "clone of the best third", "recorded episodes")
        )
        returns = (
            f"{statistics.mean(row['return'] for row in some):,.1f}" if some else "-"
            for some in (ours, clone, data)
        )
        fit = statistics.mean(row["fit_cpu_seconds"] for row in ours)
        table.append([name, *returns, f"{fit:.0f} s", f"{ours[0]['state_bytes']:,.0f} bytes"])
    head = ["mean return", "AarenPolicy", "clone of the best third", "recorded", "fit, CPU", "state"]
    return _table(head, ["---"] + ["--:"] * 5, table)


def which_forecaster() -> str:
    """Show the forecasters at 96 and 720 steps beside the published numbers."""
    names = ["base", "linear-336", "linear-96", "DLinear style", "PatchTST style", "last season"]
    table = []
    for (horizon, dataset), errors in _forecasts().reindex(columns=names).iterrows():
        if horizon in (96, 720):
            known = [published.lookup("forecasting", dataset, horizon, "mse", model) for model in PAIR]
            table.append(
                [
                    f"{dataset}, {horizon}",
                    *("-" if math.isnan(error) else f"{error:.3f}" for error in errors),
                    *("-" if cell is None else f"{cell.mean:.2f}" for cell in known),
                ]
            )
    head = ["MSE", "AarenForecaster", *names[1:], "published Aaren", "published Transformer"]
    return _table(head, ["---"] + ["--:"] * 8, table)


def hawkes_gaps() -> str:
    """Show how far each model is from the process that made the data."""
    found = {}
    for record in _runs("events", dataset="hawkes", rule="clean", profile="cpu", seed=0):
        found[record.cell["model"]] = record.metric("test.gap_to_truth")
    rows = [[f"`{model}`", f"{gap:.3f}"] for model, gap in sorted(found.items(), key=lambda item: item[1])]
    return _table(["`--model`", "nats per event above the true process"], ["---", "--:"], rows)


def event_forecaster() -> str:
    """Show the estimator beside its baseline, set by set."""
    rows = []
    for row in _read(ROOT / "results" / "bench" / "event-forecaster.json")["rows"]:
        is_known = row["nll_true"] is not None
        hits = f"{100 * row['accuracy']:.1f} / {100 * row['accuracy_markov']:.1f}" if row["kinds"] > 1 else ""
        rows.append(
            [
                row["set"],
                f"{row['events_fitted']:,}",
                f"{row['nll']:.3f}",
                f"{row['nll_markov']:.3f}",
                f"{row['gain']:+.3f} ± {row['gain_error']:.3f}",
                f"{row['nll'] - row['nll_true']:.3f}" if is_known else "",
                f"{row['nll_markov'] - row['nll_true']:.3f}" if is_known else "",
                hits,
                f"{row['cpu_seconds']:.0f} s",
            ]
        )
    names = [
        "",
        "events fitted",
        "estimator",
        "Markov",
        "gain",
        "above truth",
        "Markov above truth",
        "kinds right, %, both",
        "fit, CPU",
    ]
    return _table(names, ["---"] + ["--:"] * 8, rows)


def event_order() -> str:
    """Show what other ways to know the order of events add to the event estimator's loss, seed by seed."""
    found = {
        (row["process"], row["variant"], row["seed"]): row["nll"]
        for row in _read(ROOT / "results" / "bench" / "event-order.json")["rows"]
    }
    processes, variants = (list(dict.fromkeys(key[place] for key in found)) for place in (0, 1))
    first, *others = variants
    rows = [
        [
            variant,
            *(
                " / ".join(
                    f"{found[process, variant, seed] - found[process, first, seed]:+.3f}"
                    for process_of, of, seed in found
                    if (process_of, of) == (process, variant)
                )
                for process in processes
            ),
        ]
        for variant in others
    ]
    return _table(["", *processes], ["---", *["--:"] * len(processes)], rows)


def event_encodings() -> str:
    """Show what decided between times and gaps."""
    rows = [
        [
            row["dataset"],
            f"`{row['model']}`",
            str(row["epochs"]),
            *(f"{row['validation_nll'][name]:.3f}" for name in ("times", "gaps")),
        ]
        for row in _read(ROOT / "results" / "events" / "encodings.json")["rows"]
    ]
    head = ["validation NLL", "`--model`", "epochs, at most", "times", "gaps"]
    return _table(head, ["---", "---", "--:", "--:", "--:"], rows)


def published_size_forecasts() -> str:
    """Show horizon 96 at profile paper, beside the published means."""
    rows = []
    for dataset, model in product(("ETTh1", "Exchange"), PAIR):
        (record,) = _runs("forecasting", dataset=dataset, horizon=96, model=model, profile="paper", seed=0)
        row = [dataset, f"`{model}`"]
        for metric in ("mse", "mae"):
            cell = published.lookup("forecasting", dataset, 96, metric, model)
            assert cell is not None
            row += [f"{record.metric(f'test.{metric}'):.3f}", f"{cell.mean:.2f}"]
        rows.append([*row, f"{record.epochs:.0f}"])
    head = ["at the published size", "`--model`", "MSE", "published", "MAE", "published", "epochs"]
    return _table(head, ["---", "---", *["--:"] * 5], rows)


def traffic_losses() -> str:
    """Show training losses and errors where Aaren is behind, averaged over seeds that both models have."""
    rows = []
    for horizon in (96, 192, 336, 720):
        by_model: list[dict[int, tuple[int, float, float]]] = [{}, {}]
        for model, by_seed in zip(PAIR, by_model, strict=True):
            for run in _runs(
                "forecasting", dataset="traffic-20", horizon=horizon, model=model, profile="cpu"
            ):
                loss: Any = run.curve[-1]["loss"]
                by_seed[run.seed] = run.updates, loss, run.metric("test.mse")
        seeds = by_model[0].keys() & by_model[1].keys()
        updates = max(by_seed[seed][0] for by_seed in by_model for seed in seeds)
        means = [statistics.mean(by_seed[seed][i] for seed in seeds) for i in (1, 2) for by_seed in by_model]
        rows.append([str(horizon), str(updates), str(len(seeds)), *(f"{mean:.3f}" for mean in means)])
    head = [
        "20 series of Traffic, horizon",
        "updates, at most",
        "seeds",
        "training loss of the last epoch: Aaren",
        "Transformer",
        "test MSE: Aaren",
        "Transformer",
    ]
    return _table(head, ["---", *["--:"] * 6], rows)


def accuracies(head: Sequence[str], columns: Sequence[tuple[str, str, str]]) -> str:
    """Show accuracies at profile paper: a column per model, rule and recipe; rows have the first column."""
    found = _accuracies()
    datasets = sorted({dataset for dataset, *column in found if tuple(column) == columns[0]})
    rows = [[name, *(_seeds(found.get((name, *column), [])) for column in columns)] for name in datasets]
    return _table(head, [":--", *["--:"] * len(columns)], rows)


def _accuracies() -> dict[tuple[str, ...], list[float]]:
    """Read all accuracies at profile paper, %: seeds by dataset, model, rule and recipe."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for run in _runs("classification", profile="paper"):
        key = tuple(str(run.cell[name]) for name in ("dataset", "model", "rule", "recipe"))
        found[key].append(100.0 * run.metric("test.accuracy"))
    return found


def nearer_recipe() -> str:
    """Say how far Adam's and RAdam's means are from the published ones, in published standard deviations."""
    found = _accuracies()
    datasets = sorted({name for name, *_, recipe in found if recipe == "adam-halving"})
    distances = []
    for dataset, model in product(datasets, PAIR):
        cell = published.lookup("classification", dataset, None, "accuracy", model)
        assert cell is not None
        means = (
            statistics.mean(found[dataset, model, "protocol", recipe]) / 100.0
            for recipe in ("adam-halving", "radam-halving")
        )
        distances.append([abs(mean - cell.mean) / cell.std for mean in means])
    nearer = sum(adam < radam for adam, radam in distances)
    farthest = " and ".join(f"{max(column):.1f}" for column in zip(*distances, strict=True))
    cells = f"{nearer} of {len(distances)} cells ({len(datasets)} datasets, two models)"
    return f"in {cells} Adam comes nearer to the published mean than RAdam; the farthest cells are {farthest}"


def policy_scores() -> str:
    """Show the scores of both models in fresh episodes, beside those of the data."""
    today = find_setting("rl").protocol("cpu")
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in _runs("rl", profile="cpu", protocol=today, changed=[]):
        found[str(run.cell["dataset"]), str(run.cell["model"])].append(run.metric("test.score"))
    datasets = sorted({dataset for dataset, model in found if model == "aaren"})
    rows = [
        [name.removesuffix("-regen"), *(_seeds(found[name, model]) for model in ("behaviour", *PAIR))]
        for name in datasets
    ]
    return _table(["regenerated data", "the data", "Aaren", "Transformer"], ["---", *["--:"] * 3], rows)


def scores_by_return() -> str:
    """Show the score by the return asked for, in multiples of the usual one."""
    return _swept("target_scale", "regenerated data")


def medium_expert() -> str:
    """Show what settings are worth to either model on HalfCheetah Medium-Expert."""
    rows = []
    for row in _read(ROOT / "results" / "rl" / "medium_expert.json")["rows"]:
        asked = row["asked"]
        returns = [one for found in asked.values() for one in found["returns"]]
        changed = " ".join(f"`{word}`" for word in row["set"].split()) or "as it is"
        scores = [_whole(found["score"]) for found in asked.values()]
        failed = f"{sum(one < 1000 for one in returns)} of {len(returns)}"
        cells = [changed, f"`{row['model']}`", str(row["seed"]), _whole(row["cpu_seconds"])]
        rows.append([*cells, *scores, failed])
    head = ["`--set`", "`--model`", "seed", "CPU seconds", "asked for 6,000", "11,000", "under 1,000"]
    return _table(head, ["---", "---", *["--:"] * 5], rows)


def medium_expert_score() -> str:
    """Say what the grid's own run scores there."""
    runs = _runs("rl", dataset="halfcheetah-medium-expert-regen", model="aaren", profile="cpu", seed=0)
    record = max(runs, key=lambda run: run.protocol)
    score, seconds = record.metric("test.score"), record.seconds["cpu"]
    return f"scores {score:.0f} in thirty fresh episodes, after {seconds:.0f} CPU seconds"


def scores_by_context() -> str:
    """Show the score by the context while acting."""
    return _swept("context", "seen while acting")


def _swept(key: str, title: str) -> str:
    """Show the sweeps that first seeds by today's protocol have."""
    today = find_setting("rl").protocol("cpu")
    rows, head = [], [title, "`--model`"]
    for run in _runs("rl", profile="cpu", seed=0, protocol=today):
        if key in run.sweeps:
            swept: Any = run.sweeps[key]["rows"]
            head[2:] = [f"{row['value']}" for row in swept]
            scores = [_whole(row["metrics"]["score"]) for row in swept]
            dataset = str(run.cell["dataset"]).removesuffix("-regen")
            rows.append([dataset, f"`{run.cell['model']}`", *scores])
    if not rows:
        return "(no run by today's protocol yet)"
    return _table(head, ["---", "---", *["--:"] * (len(head) - 2)], rows)


def published_size_policies() -> str:
    """Show what runs at profile paper took and scored."""
    rows = []
    for model in PAIR:
        (run,) = _runs("rl", dataset="hopper-medium-regen", model=model, profile="paper", seed=0)
        scores: list[Any] = [point["validation"]["score"] for point in run.curve]  # type: ignore[index, call-overload]
        found = [wall_seconds(run) / 60.0, *scores, run.metric("test.score")]
        rows.append([f"`{model}`", *map(_whole, found)])
    head = [
        "at the published size",
        "minutes",
        "update 300",
        "600",
        "900",
        "fresh episodes of the best weights",
    ]
    return _table(head, ["---", *["--:"] * 5], rows)


def sin_gap() -> str:
    """Say how far models that know the clock stay from the process whose rate depends on it."""
    aaren, transformer = (
        run.metric("test.gap_to_truth")
        for model in PAIR
        for run in _runs("events", dataset="sin", model=model, profile="cpu", seed=0)
    )
    return f"Aaren stays {aaren:.3f} and the Transformer {transformer:.3f} nats above the truth"


def _bench(kind: str) -> Path:
    return ROOT / "results" / "bench" / f"{kind}.json"


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _seeds(values: Sequence[float]) -> str:
    """Write a mean over seeds, with their standard deviation and number where there are several."""
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else "\N{EN DASH}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f} ({len(values)})"


def _table(head: Sequence[str], align: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, align, *rows))


def _runs(setting: str, **wanted: object) -> list[RunRecord]:
    """Return the records of a setting with these values, of the cell or of the run itself, by their cells."""
    runs = [
        run
        for run in _results()
        if run.setting == setting
        and all(run.cell.get(name, getattr(run, name, None)) == value for name, value in wanted.items())
    ]
    return sorted(runs, key=lambda run: ([str(value) for value in run.cell.values()], run.seed))


@cache
def _results() -> list[RunRecord]:
    return collect(ROOT / "results").records


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def digits_by_order() -> str:
    """Show accuracies of stacks that know order in different ways."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _read(ROOT / "results" / "nn" / "order.json")["measurements"]:
        found[row["order"]].append(row)
    rows = []
    for order, runs in found.items():
        scores = [100.0 * run["accuracy"] for run in runs]
        size = runs[0]["state_bytes"]
        kept = "grows" if size is None else f"{size:,} bytes"
        rows.append([order, f"{statistics.mean(scores):.1f} ± {statistics.stdev(scores):.1f}", kept])
    seeds = len(next(iter(found.values())))
    return _table(["", f"accuracy, %, {seeds} seeds", "state"], ["---", "--:", "--:"], rows)


_RECIPES = ("adam-halving", "radam-halving", "radam-constant")
BENCHMARKS: Mapping[Any, str] = {  # the page of each
    scan: "docs/benchmarks.md",
    stream_view: "docs/resources.md",
    train: "docs/resources.md",
    pool: "docs/pool.md",
    pool_soak: "docs/pool.md",
    precision: "docs/resources.md",
    startup: "docs/benchmarks.md",
    policy_estimator: "docs/rl.md",
    forecaster: "docs/forecasting.md",
    live_forecaster: "docs/forecasting.md",
    mixers: "docs/compare.md",
    paths: "docs/extending.md",
    classifier: "docs/classification.md",
    defaults: "docs/which-model.md",
}
TABLES: Mapping[tuple[str, str], Callable[[], str]] = {  # by page and name
    ("README.md", "numbers"): numbers,
    ("docs/benchmarks.md", "measured"): measured,
    ("docs/which-model.md", "classifiers"): which_classifier,
    ("docs/which-model.md", "forecasters"): which_forecaster,
    ("docs/which-model.md", "events"): event_forecaster,
    ("docs/which-model.md", "policies"): which_policy,
    **{
        (page, module.BENCHMARK.command): partial(benchmark_tables, module.BENCHMARK)
        for module, page in BENCHMARKS.items()
    },
    ("docs/events.md", "gaps to the Hawkes process"): hawkes_gaps,
    ("docs/events.md", "times or gaps"): event_encodings,
    ("docs/events.md", "the event forecaster"): event_forecaster,
    ("docs/events.md", "order of events"): event_order,
    ("docs/classification.md", "learned scores"): learned_scores,
    ("docs/forecasting.md", "the published size"): published_size_forecasts,
    ("docs/forecasting.md", "losses on Traffic"): traffic_losses,
    ("docs/classification.md", "accuracy by rule"): lambda: accuracies(
        ["accuracy by rule", "protocol: Aaren", "Transformer", "clean: Aaren", "Transformer"],
        [(model, rule, "radam-halving") for rule in ("protocol", "clean") for model in PAIR],
    ),
    ("docs/classification.md", "accuracy beside others"): lambda: accuracies(
        ["accuracy beside", "causal: Aaren", "Transformer", "MiniRocket", "1-NN, DTW", "majority"],
        [
            (model, "protocol", "radam-halving")
            for model in ("aaren-causal", "transformer-causal", "minirocket", "dtw", "majority")
        ],
    ),
    ("docs/classification.md", "accuracy by recipe"): lambda: accuracies(
        ["accuracy by recipe", *(word for name in _RECIPES for word in (f"`{name}`: Aaren", "Transformer"))],
        [(model, "protocol", recipe) for recipe in _RECIPES for model in PAIR],
    ),
    ("docs/modules.md", "digits by order"): digits_by_order,
    ("docs/rl.md", "scores"): policy_scores,
    ("docs/rl.md", "scores by return asked for"): scores_by_return,
    ("docs/rl.md", "scores by context"): scores_by_context,
    ("docs/rl.md", "Medium-Expert of HalfCheetah"): medium_expert,
    ("docs/rl.md", "the published size"): published_size_policies,
}
SENTENCES: Mapping[Callable[[], str], str] = {
    sin_gap: "docs/events.md",
    medium_expert_score: "docs/rl.md",
    nearer_recipe: "docs/classification.md",
}


def main() -> None:
    """Rewrite every table."""
    for (page, name), make in TABLES.items():
        begin, end = marks(name)
        is_changed = write_marked(
            ROOT / page, begin, end, f"\n{make().strip()}\n\n", option="benchmarks/docs_tables.py"
        )
        print(f"{page}, {name}: {'rewritten' if is_changed else 'up to date'}")


if __name__ == "__main__":
    main()
