"""What belongs to a setting's tables: blocks of datasets x models x choices, each a product.

`aaren.presets.<setting>` has a function `grid(profile)` that returns its blocks, the one of the paper's table
first; a user's own setting may have one beside its preset. Knows nothing of running.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from aaren.errors import ConfigError
from aaren.tasks import TASKS, find_task


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A product of datasets, models and choices; every cell is one `aaren train` per seed."""

    datasets: tuple[str, ...]
    models: tuple[str, ...]  # in the order in which they are run
    choices: tuple[tuple[str, ...], ...] = ((),)  # each: `KEY=VALUE`, as after --set
    seedless: tuple[str, ...] = ()  # models that draw nothing at random: seed 0 says it all
    sweeps: tuple[str, ...] = ()  # asked of every trained run: `KEY=A,B,C`, as after evaluate --sweep


def blocks_of(setting: str, profile: str) -> Sequence[Block]:
    """Return the blocks of a setting's grid."""
    find = grid_function(setting)
    if find is None:
        raise ConfigError(
            f"the presets of {setting!r} have no grid(profile): run its cells one by one with `aaren train`."
        )
    return find(profile)


def grid_function(setting: str) -> Callable[[str], Sequence[Block]] | None:
    """Find a setting's `grid`; None where its presets have none."""
    find_task(setting)  # so that an unknown name is called so
    module = importlib.import_module(f"aaren.presets.{setting}" if setting in TASKS else setting)
    return cast("Callable[[str], Sequence[Block]] | None", getattr(module, "grid", None))
