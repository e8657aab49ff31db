"""The runs whose batches and steps benches measure: here presets meet benches, which do not know them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aaren.train.config import RunConfig

# The first that is on disk; the last needs no file of the user's.
DATASETS = {
    "forecasting": ("ETTm1", "seasonal"),
    "classification": ("JapaneseVowels",),
    "events": ("sin",),
    "rl": ("hopper-medium-regen", "pendulum"),
}


def cpu_run(setting: str, *, model: str = "aaren", threads: int = 1) -> "RunConfig":
    """Return a setting's run of the `cpu` profile, on the best of its datasets that is here."""
    from aaren.presets import make_run

    chosen = [f"engine.threads={threads}"]
    return make_run(setting, choose_dataset(setting), model=model, profile="cpu", assignments=chosen)


def choose_dataset(setting: str) -> str:
    """Return the first dataset of a setting that is on disk, or the one that always is there."""
    from aaren.data.registry import lookup
    from aaren.data.source import on_disk

    *wanted, last = DATASETS[setting]
    return next((name for name in wanted if on_disk(lookup(name))), last)


def known_settings() -> Sequence[str]:
    """Return the settings that can be trained."""
    from aaren.tasks import TASKS

    return [setting for setting in DATASETS if setting in TASKS]
