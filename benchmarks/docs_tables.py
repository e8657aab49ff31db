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
import event_forecaster
import forecaster
import live_forecaster
import mixers
import paths
import policy_estimator
import pool
import push
import scan
import startup
import stream
import train
from aaren.engine.record import RunRecord
from aaren.engine.setting import find_setting
from aaren.files.marked import write_marked
from aaren.lab import published
from aaren.lab.names import ADAM, group_of
from aaren.lab.records import collect, wall_seconds
from harness import Benchmark, page_text
from records import BenchRecord, number, read_record

ROOT = Path(__file__).parents[1]
PAIR = ("aaren", "transformer")


def marks(name: str) -> tuple[str, str]:
    """Return the lines above and below a table."""
    return f"<!-- begin: {name}; written by benchmarks/docs_tables.py -->\n", f"<!-- end: {name} -->"


def benchmark_tables(benchmark: Benchmark[Any]) -> str:
    """Show the committed record of a benchmark, if there is one."""
    if not _bench(benchmark.kind).exists():
        file = f"results/bench/{benchmark.kind}.json"
        return f"Not measured on a quiet machine yet: `{benchmark.command} --record {file}`."
    return page_text(benchmark, read_record(_bench(benchmark.kind), kind=benchmark.kind))


def numbers() -> str:
    """Say in three lines what a user gains, for README, and whether the code has changed since."""
    stream_record, scan_record = (read_record(_bench(kind)) for kind in ("stream", "scan"))
    errors = _forecasts()
    lower = (errors["base"] < errors["linear-96"]).sum()
    lines = [
        f"- **Training**: {_whole_step()}, without dropout on two CPU cores. Of the operator alone, without "
        f"layers around it, causal attention takes {_operator(scan_record)}x the time at 1,024 items.",
        f"- **Streams**: {_stream(stream_record)}",
        "- **Forecasts**: `AarenForecaster` is a bank of recurrences, of long series a linear model on the "
        "last 336 rows in closed form, both without attention; the linear model's squared error is below "
        f"that of one on 96 rows in {lower} of {len(errors)} rows of the field's benchmarks.",
    ]
    records = [stream_record, scan_record, read_record(_bench("train")), read_record(_bench("forecaster"))]
    if any(record.changed for record in records):
        dates = sorted(record.date[:10] for record in records)
        lines.append(
            f"\n**Stale**: measured from {dates[0]} to {dates[-1]} (the training steps by hand, on a quiet "
            "machine); the code has changed since, and each will be measured anew."
        )
    return "\n".join(lines)


def _whole_step() -> str:
    """Compare whole training steps of two layers."""
    record = read_record(_bench("train"))
    rows = {(row.get("width"), row["contender"], row["length"]): row for row in record.measurements}
    ratios = dict(NO_RECORD_YET)
    for (width, contender, length), row in rows.items():
        if contender == "transformer" and width is not None:
            ratio = number(row, "median_seconds") / number(rows[width, "aaren", length], "median_seconds")
            ratios[width, length] = f"{ratio:.3g}"
    return (
        f"a whole training step of two layers takes a Transformer {ratios[64, 96]}x Aaren's time at 96 "
        f"items, {ratios[64, 1024]}x at 1,024 and {ratios[64, 8192]}x at 8,192 for width 64, and "
        f"{ratios[256, 96]}x and {ratios[256, 1024]}x at 96 and 1,024 for width 256"
    )


def _operator(record: BenchRecord) -> str:
    slow, fast = (
        record.find(contender=name, direction="forward+backward", length=1024) for name in ("sdpa", "fused")
    )
    assert slow is not None
    assert fast is not None
    return f"{number(slow, 'median_seconds') / number(fast, 'median_seconds'):.1f}"


def _stream(record: BenchRecord) -> str:
    def seconds(name: str, tokens: int) -> float:
        (row,) = (row for row in stream.stream_rows(record, name) if row["tokens"] == tokens)
        return number(row, "cumulative_seconds")

    late = record.find(what="flatness", size="paper", contender=stream.FOLDED)
    assert late is not None
    unfolded = seconds("aaren", 1024) / seconds("transformer", 1024)
    folded = seconds("transformer", 32_768) / seconds(stream.FOLDED, 32_768)
    return (
        f"the state takes {number(late, 'late_state_bytes') / 1e3:.2f} kB, after a thousand tokens and "
        f"after a million; 32,768 tokens take a Transformer with its cache {folded:.2f}x the time (width "
        "512, folded). Short streams gain nothing: without folding the first 1,024 tokens take Aaren "
        f"{unfolded:.2f}x the Transformer's time."
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
    """Read all accuracies at profile paper, %: seeds by dataset, model, rule and recipe.

    Seeds 5 to 9 with Adam, which the verdict counts, never join older ones: results/plan.md.
    """
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for run in _runs("classification", profile="paper"):
        *place, recipe = (str(run.cell[name]) for name in ("dataset", "model", "rule", "recipe"))
        key = (*place, ADAM if group_of(run) == ADAM else recipe)
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


NO_RECORD_YET: Mapping[
    Any, str
] = {  # whole steps on a quiet machine with two cores; train.json was of one block then
    (64, 96): "1.7",
    (64, 1024): "4.1",
    (64, 8192): "18",
    (256, 96): "1.35",
    (256, 1024): "2.0",
}
_RECIPES = ("adam-halving", "radam-halving", "radam-constant")
BENCHMARKS: Mapping[Any, str] = {  # the page of each
    scan: "docs/benchmarks.md",
    startup: "docs/benchmarks.md",
    stream: "docs/resources.md",
    train: "docs/resources.md",
    push: "docs/resources.md",
    pool: "docs/pool.md",
    policy_estimator: "docs/rl.md",
    forecaster: "docs/forecasting.md",
    live_forecaster: "docs/forecasting.md",
    mixers: "docs/compare.md",
    paths: "docs/extending.md",
    classifier: "docs/classification.md",
    event_forecaster: "docs/events.md",
}
TABLES: Mapping[tuple[str, str], Callable[[], str]] = {  # by page and name
    ("README.md", "numbers"): numbers,
    ("docs/which-model.md", "classifiers"): which_classifier,
    ("docs/which-model.md", "forecasters"): which_forecaster,
    ("docs/which-model.md", "events"): lambda: benchmark_tables(event_forecaster.BENCHMARK),
    ("docs/which-model.md", "policies"): which_policy,
    **{
        (page, module.BENCHMARK.command): partial(benchmark_tables, module.BENCHMARK)
        for module, page in BENCHMARKS.items()
    },
    ("docs/events.md", "gaps to the Hawkes process"): hawkes_gaps,
    ("docs/events.md", "times or gaps"): event_encodings,
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
    ("docs/rl.md", "the published size"): published_size_policies,
}
SENTENCES: Mapping[Callable[[], str], str] = {
    sin_gap: "docs/events.md",
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
