"""Runs of the `cpu` profile, of every setting, on the best of its datasets that is on disk."""

from aaren.datasets.catalogue import lookup
from aaren.datasets.fetch import on_disk
from aaren.engine.config import RunConfig
from aaren.engine.presets import make_run

DATASETS = {  # the first that is on disk; the last can be made anywhere
    "forecasting": ("ETTm1", "seasonal"),
    "classification": ("JapaneseVowels",),
    "events": ("sin",),
    "rl": ("hopper-medium-regen", "pendulum"),
}


def cpu_run(setting: str, *, model: str = "aaren") -> RunConfig:
    """Return a setting's run of the `cpu` profile, on one thread."""
    chosen = ["engine.threads=1"]
    return make_run(setting, choose_dataset(setting), model=model, profile="cpu", assignments=chosen)


def choose_dataset(setting: str) -> str:
    """Return the first dataset of a setting that is on disk, or the one that can be made anywhere."""
    *wanted, last = DATASETS[setting]
    return next((name for name in wanted if on_disk(lookup(name))), last)


def unavailable(run: RunConfig) -> str:
    """Say that a run's data is missing, for a record, where paths do not belong."""
    name = run.cell()["dataset"]
    return f"{name} cannot be opened here: aaren data verify {name}"
