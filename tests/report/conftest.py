"""Run folders written by hand: real records and curves with numbers that a test chooses."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aaren.engine.record import RunRecord, read_record
from aaren.report.names import setting_of

REPORTS = {
    "forecasting": ["test.mse", "test.mae"],
    "classification": ["test.accuracy"],
    "events": ["test.nll", "test.rmse", "test.accuracy"],
    "rl": ["best.score", "last.score", "test.score", "test.return"],
}
LATER = {  # what a cell says in the order of the tasks
    "classification": {"rule": "protocol", "recipe": "radam-halving"},
}
WriteRun = Callable[..., Path]


@pytest.fixture
def write_run() -> WriteRun:
    """Write the folder of a finished run; `numbers` are its reports in their order, or by name."""
    return make_run


@pytest.fixture(scope="session")
def full_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All four settings, both models, references, variants, figures; made-up numbers; only to be read."""
    return make_results(tmp_path_factory.mktemp("full") / "results")


def make_run(
    root: Path,
    setting: str,
    dataset: str,
    model: str,
    *numbers: float,
    seed: int = 0,
    profile: str = "cpu",
    horizon: int | None = None,
    cell: dict[str, str] | None = None,
    changed: tuple[str, ...] = (),
    task: dict[str, object] | None = None,
    facts: dict[str, object] | None = None,
    test: dict[str, float] | None = None,
    curve: list[float] | None = None,
    figures: dict[str, object] | None = None,
    date: str = "2026-01-01T00:00:00+00:00",
    data: dict[str, str] | None = None,
    status: str = "finished",
    protocol: int | None = None,  # None: today's
) -> Path:
    reports = REPORTS[setting]
    metrics: dict[str, dict[str, float]] = {"test": dict(test or {}), "best": {}, "last": {}}
    for name, number in zip(reports, numbers, strict=False):
        group, _, key = name.partition(".")
        metrics[group][key] = number
    place = {"dataset": dataset, **({"horizon": horizon} if horizon else {}), "model": model}
    place |= {**LATER.get(setting, {}), **(cell or {})}
    words = [str(word) for word in place.values()]
    last = [] if protocol is None else [f"protocol{protocol}"]
    folder = root / setting / "-".join([*words, profile, f"seed{seed}", *changed, *last])
    record = RunRecord(
        status=status,
        setting=setting,
        profile=profile,
        seed=seed,
        cell=place,
        changed=list(changed),
        config={"setting": setting, "task": dict(task or {}), "seed": seed},
        command=f"aaren train {setting} {dataset} --model {model} --profile {profile} --seed {seed}",
        metrics=metrics,
        reports=reports,
        parameters=10_000,
        updates=100,
        epochs=4.0,
        ended_by="max_updates",
        best_update=100,
        resumed=0,
        seconds={"training": 100.0, "inside_updates": 90.0, "evaluation": 15.0, "saving": 5.0},
        curve=[
            {"update": 10 * (n + 1), "loss": value, "validation": {reports[0].partition(".")[2]: value}}
            for n, value in enumerate(curve or ())
        ],
        figures=dict(figures or {}),
        data=data or {},
        protocol=setting_of(setting).protocol(profile) if protocol is None else protocol,
        facts=dict(facts or {}),
        error=None if status == "finished" else "DataError: no such column",
        date=date,
        versions={"aaren": "0.1.0", "python": "3.11.0", "torch": "2.13.0"},
        machine={"cpu": "a processor", "cores": 2, "memory_bytes": 8_000_000_000},
    )
    record.write(folder / "record.json")
    return folder


def write_sweep(folder: Path, key: str, values: dict[str, float], metric: str) -> None:
    rows = [{"value": value, "metrics": {metric: found}} for value, found in values.items()]
    record = read_record(folder / "record.json")
    replace(record, sweeps={**record.sweeps, key: {"rows": rows}}).write(folder / "record.json")


def make_results(root: Path) -> Path:
    rng = random.Random(0)

    def near(value: float, spread: float) -> float:
        return value + rng.gauss(0.0, spread)

    def falling(end: float) -> list[float]:
        return [end * (1.0 + math.exp(-n / 3.0)) + rng.gauss(0.0, 0.01) for n in range(12)]

    for horizon in (96, 192, 336):
        for dataset, level in (("ETTh1", 0.5), ("ETTm2", 0.3), ("Weather", 0.2)):
            for model in ("aaren", "transformer"):
                for seed in range(1 if horizon == 336 else 5):
                    mse = near(level + horizon / 2000, 0.006)
                    wave = [round(math.sin(0.2 * n + seed), 3) for n in range(96 + horizon)]
                    windows = [
                        {
                            "number": place,
                            "past": wave[:96],
                            "truth": wave[96:],
                            "forecast": [round(near(0.9 * value, 0.05), 3) for value in wave[96:]],
                        }
                        for place in range(3)
                    ]
                    make_run(
                        root,
                        "forecasting",
                        dataset,
                        model,
                        mse,
                        0.9 * mse,
                        seed=seed,
                        horizon=horizon,
                        curve=falling(mse),
                        figures={"column": "OT", "windows": windows} if seed == 0 else None,
                        data={f"{dataset}.csv": "0" * 64},
                    )
            same: dict[str, Any] = {"horizon": horizon, "data": {f"{dataset}.csv": "0" * 64}}
            make_run(root, "forecasting", dataset, "linear", level, 0.8 * level, **same)
            make_run(root, "forecasting", dataset, "naive-last", 2 * level, level, **same)
    make_run(
        root,
        "forecasting",
        "ETTh1",
        "aaren",
        0.6,
        0.5,
        horizon=96,
        changed=("task.network.cross_attention",),
        task={"network": {"cross_attention": "aaren"}},
    )
    for dataset, level in (("JapaneseVowels", 0.96), ("Handwriting", 0.27), ("UWaveGestureLibrary", 0.8)):
        for model, base in (("aaren", level), ("transformer", level - 0.01)):
            for seed in range(5):
                for more in ({}, {"rule": "clean"}):
                    end = near(base - 0.02 * len(more), 0.01)
                    early = {f"accuracy_at_{n / 20:.2f}": end * (1 - 0.8**n) for n in range(1, 21)}
                    make_run(
                        root,
                        "classification",
                        dataset,
                        model,
                        end,
                        seed=seed,
                        profile="paper",
                        cell=more,
                        test=early,
                        curve=[end * (1 - 0.5**n) for n in range(1, 12)],
                        facts={"tested_on": "TEST"},
                    )
        make_run(root, "classification", dataset, "minirocket", level + 0.02, profile="paper")
        make_run(root, "classification", dataset, "majority", 0.1, profile="paper")
    for dataset, same in (("sin", ["nll", "rmse"]), ("mimic", ["accuracy"]), ("uber-sample", [])):
        for model in ("aaren", "transformer", "poisson"):
            for seed in range(3):
                nll = near(0.7 if model != "poisson" else 1.1, 0.02)
                shares = [0.1 + rng.gauss(0.0, 0.01) for _ in range(10)]
                pits = {"pit_distance": 0.05, **{f"pit_{n}": share for n, share in enumerate(shares)}}
                gaps = [round(rng.expovariate(1.0), 3) for _ in range(40)]
                make_run(
                    root,
                    "events",
                    dataset,
                    model,
                    nll,
                    near(1.3, 0.05),
                    near(0.8, 0.01) if dataset == "mimic" else math.nan,
                    seed=seed,
                    test=pits,
                    curve=falling(nll),
                    facts={"comparable": same, "comparable_reason": "the unit is not known"},
                    figures={
                        "sequence": 1,
                        "unit": "hours",
                        "gap": gaps,
                        **{name: [q] * 40 for name, q in (("low", 0.1), ("median", 0.7), ("high", 2.3))},
                    },
                )
    for dataset, level in (("hopper-medium-regen", 60.0), ("halfcheetah-medium-regen", 42.0)):
        for model in ("aaren", "transformer", "random"):
            for seed in range(3):
                best = near(level if model != "random" else 1.0, 4.0)
                folder = make_run(
                    root,
                    "rl",
                    dataset,
                    model,
                    best,
                    best - 5.0,
                    best - 2.0,
                    30 * best,
                    seed=seed,
                    curve=[best * (1 - 0.6**n) for n in range(1, 6)],
                    facts={"target_return": 3600.0, "environment": "Hopper-v4"},
                    test={f"return_{n}": near(30 * best, 100.0) for n in range(10)},
                )
                write_sweep(folder, "target_scale", {str(n / 4): 800.0 * n for n in range(1, 6)}, "return")
                write_sweep(folder, "context", {"window": best, "carried": best - 20.0}, "score")
    broken = root / "events" / "cut-off"
    broken.mkdir()
    (broken / "record.json").write_text('{"format": 1, "kind": "run", "sta')
    foreign = root / "events" / "foreign"
    foreign.mkdir()
    (foreign / "record.json").write_text('{"name": "something else"}')
    return root
