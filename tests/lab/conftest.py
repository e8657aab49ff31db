"""Short ways to toy runs for the tests of the grid, and to records with numbers that a test chooses."""

import math
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.engine.config import EngineConfig, RunConfig
from aaren.engine.record import RunRecord
from aaren.engine.setting import find_setting
from aaren.lab.plan import PlannedRun
from support import toy_trouble
from support.toy_task import SETTING, ToyConfig

ToyRun = Callable[..., RunConfig]
WriteRun = Callable[..., Path]
REPORTS = {
    "forecasting": ["test.mse", "test.mae"],
    "classification": ["test.accuracy"],
    "events": ["test.nll", "test.rmse", "test.accuracy"],
    "rl": ["test.score", "best.score", "last.score", "test.return"],
}


@pytest.fixture
def toy_run() -> ToyRun:
    """Configure a toy run that saves a checkpoint after every update."""

    def configure(*, seed: int = 0, checkpoint_seconds: float = 0.0, **choices: object) -> RunConfig:
        return RunConfig(
            setting=SETTING.name,
            task=ToyConfig(**choices),
            seed=seed,
            engine=EngineConfig(threads=1, checkpoint_seconds=checkpoint_seconds),
        )

    return configure


@pytest.fixture
def planned(toy_run: ToyRun, tmp_path: Path) -> Callable[..., PlannedRun]:
    """Plan a toy run below the test's folder."""

    def make(seed: int = 0, **choices: object) -> PlannedRun:
        config = toy_run(seed=seed, **choices)
        folder = tmp_path / "runs" / config.setting / config.folder_name()
        return PlannedRun(config=config, folder=folder, command=f"toy {seed}", dataset="line")

    return make


@pytest.fixture
def troubled(tmp_path: Path) -> Callable[..., PlannedRun]:
    """Plan a toy run that hangs or dies, as its dataset says."""

    def make(dataset: str, *, epochs: int = 2) -> PlannedRun:
        config = RunConfig(
            setting=toy_trouble.SETTING.name,
            task=ToyConfig(dataset=dataset, epochs=epochs),
            engine=EngineConfig(threads=1, checkpoint_seconds=0.0),
        )
        folder = tmp_path / "runs" / config.setting / dataset
        return PlannedRun(config=config, folder=folder, command="toy", dataset=dataset)

    return make


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a subprocess that can import the toy task."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}


@pytest.fixture
def write_run() -> WriteRun:
    """Write the folder of a finished run; `numbers` are its reports in their order."""
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
    protocol: int | None = None,  # None: today's
    test: dict[str, float] | None = None,
    **values: object,
) -> Path:
    metrics: dict[str, dict[str, float]] = {"test": dict(test or {}), "best": {}, "last": {}}
    for name, number in zip(REPORTS[setting], numbers, strict=False):
        part, _, key = name.partition(".")
        metrics[part][key] = number
    place = {"dataset": dataset, **({"horizon": horizon} if horizon else {}), "model": model}
    place |= {"rule": "protocol", "recipe": "radam-halving"} if setting == "classification" else {}
    place |= cell or {}
    protocol = find_setting(setting).protocol(profile) if protocol is None else protocol
    words = [*map(str, place.values()), profile, f"seed{seed}", f"protocol{protocol}"]
    record = RunRecord(
        **{
            "status": "finished",
            "setting": setting,
            "profile": profile,
            "seed": seed,
            "cell": place,
            "changed": [],
            "config": {},
            "command": f"aaren train {setting} {dataset} --model {model} --profile {profile} --seed {seed}",
            "metrics": metrics,
            "reports": REPORTS[setting],
            "parameters": 10_000,
            "updates": 100,
            "epochs": 4.0,
            "ended_by": "max_updates",
            "seconds": {"training": 100.0, "evaluation": 15.0},
            "protocol": protocol,
            "date": "2026-01-01T00:00:00+00:00",
            "versions": {"aaren": "0.1.0", "torch": "2.13.0"},
            "machine": {"cpu": "a processor", "cores": 2, "memory_bytes": 8_000_000_000},
            **values,
        }
    )
    folder = root / setting / "-".join([*words, *record.changed, *record.data.values()])
    record.write(folder / "record.json")
    return folder


def make_results(root: Path) -> Path:
    rng = random.Random(0)

    def near(value: float, spread: float) -> float:
        return value + rng.gauss(0.0, spread)

    def curve(name: str, end: float) -> list[dict[str, object]]:
        values = [near(end * (1.0 + math.exp(-n / 3.0)), 0.01) for n in range(12)]
        return [
            {"update": 10 * n, "loss": value, "validation": {name: value}} for n, value in enumerate(values)
        ]

    for dataset, horizon in (("ETTh1", 96), ("ETTh1", 192), ("traffic-20", 96)):
        for model in ("aaren", "transformer", "linear"):
            for seed in range(1 if model == "linear" else 3):
                mse = near(0.5 + horizon / 2000, 0.006)
                wave = [round(math.sin(0.2 * n + seed), 3) for n in range(96 + horizon)]
                window = {"past": wave[:96], "truth": wave[96:], "forecast": wave[:horizon]}
                extra = {"figures": {"column": "OT", "windows": [window]}, "curve": curve("mse", mse)}
                place = {"horizon": horizon, "seed": seed, "data": {f"{dataset}.csv": "0" * 64}}
                make_run(root, "forecasting", dataset, model, mse, 0.9 * mse, **place, **extra)
    for model, level in (("aaren", 0.27), ("transformer", 0.26), ("minirocket", 0.3)):
        for seed in range(1 if model == "minirocket" else 5):
            for cell in ({}, {"rule": "clean"}, {"recipe": "adam-halving"}):
                end = near(level, 0.01)
                early = {f"accuracy_at_{n / 20:.2f}": end * (1 - 0.8**n) for n in range(1, 21)}
                make_run(
                    root,
                    "classification",
                    "Handwriting",
                    model,
                    end,
                    seed=seed,
                    profile="paper",
                    cell=cell,
                    test=early,
                )
    for dataset, same in (("sin", ["nll", "rmse"]), ("mimic", ["accuracy"]), ("uber-sample", [])):
        for model in ("aaren", "transformer", "poisson"):
            for seed in range(3):
                nll = near(0.7 if model != "poisson" else 1.1, 0.02)
                pits = {f"pit_{n}": 0.1 + rng.gauss(0.0, 0.01) for n in range(10)}
                facts = {"comparable": same, "comparable_reason": "the unit is not known"}
                numbers = (nll, near(1.3, 0.05), near(0.8, 0.01) if dataset == "mimic" else math.nan)
                extra = {"test": pits, "facts": facts, "curve": curve("nll", nll)}
                make_run(root, "events", dataset, model, *numbers, seed=seed, **extra)
    for dataset, level in (("hopper-medium-regen", 60.0), ("halfcheetah-medium-expert-regen", 42.0)):
        for model in ("aaren", "transformer", "behaviour"):
            for seed in range(1 if model == "behaviour" else 3):
                score = near(level, 4.0)
                returns = {f"return_{n}": near(30 * score, 100.0) for n in range(10)}
                facts = {"environment": "Hopper-v4"}
                numbers = (score, score - 5.0, score - 2.0, 30 * score)
                make_run(root, "rl", dataset, model, *numbers, seed=seed, test=returns, facts=facts)
    for name, text in (("cut-off", '{"format": 1, "kind": "run", "sta'), ("foreign", '{"name": "other"}')):
        (root / "events" / name).mkdir()
        (root / "events" / name / "record.json").write_text(text)
    return root
