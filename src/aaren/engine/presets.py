"""Ready-made runs: dataset x model x profile, and what else a setting tells cells apart by (horizon).

`aaren.engine.presets.<setting>` has a function `preset(dataset, *, model, profile, seed, data_file, ...)` that
returns a RunConfig. Keyword arguments of its own are choices that other values depend on: `--set` gives them
to the preset and applies all other keys to its result.

What belongs to a setting's tables: blocks of datasets x models x choices, each a product.

`aaren.engine.presets.<setting>` has a function `grid(profile)` that returns its blocks, the one of the paper's table
first; a user's own setting may have one beside its preset. Knows nothing of running.

The name of a registered dataset, for the presets of every setting.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_type_hints

from aaren.datasets.catalogue import lookup
from aaren.engine.config import PROFILES, RunConfig, faults_error, from_mapping, override, read_toml
from aaren.engine.fields import Text, WrongValueError, flatten, is_writable, read_text, unknown_key
from aaren.engine.settings import TASKS, find_task, import_task
from aaren.errors import ConfigError

__all__ = ["load_run", "make_run"]

_GIVEN = ("dataset", "model", "profile", "seed", "data_file")


def make_run(
    setting: str,
    dataset: str = "",
    *,
    model: str = "aaren",
    profile: str = "cpu",
    seed: int = 0,
    data_file: str = "",
    assignments: Sequence[str] = (),
    source: str = "--set",
) -> RunConfig:
    """Build a run from a preset.

    Args:
        setting: forecasting, classification, events, rl, or a user's own module with TASK and preset.
        dataset: A name of the registry; may be left out with a data_file.
        model: `aaren` or `transformer`, and whatever else the setting knows.
        profile: `smoke` (seconds), `cpu` (minutes on one core) or `paper` (as published).
        seed: Of weights, dropout and order.
        data_file: The user's own data, instead of a dataset.
        assignments: `key=value`, as after `--set`.
        source: Where they come from, for errors.
    """
    for name, text in (("dataset", dataset), ("model", model), ("data_file", data_file)):
        if not is_writable(text):
            raise ConfigError(f"{name}: expected text that can be written in UTF-8; got {text!r}.")
    import_task(setting)
    preset = _find_preset(setting)
    if profile not in PROFILES:
        raise ConfigError(f"profile must be one of {', '.join(PROFILES)}; got {profile!r}.")
    if not dataset and not data_file:
        raise ConfigError(f"name a dataset (aaren data list {setting}) or give your own: --data FILE.")
    if dataset and data_file:
        raise ConfigError(f"both a dataset ({dataset}) and --data {data_file} were given: choose one.")
    choices, rest = _split(preset, assignments, source)
    config = preset(dataset, model=model, profile=profile, seed=seed, data_file=data_file, **choices)
    return override(config, rest, source=source) if rest else config


def load_run(path: Path, assignments: Sequence[str] = ()) -> RunConfig:
    """Read a run's TOML file; a table [preset] names the preset that the other keys change.

    All keys of the file stand as in a written run; `[preset]` takes dataset, model, profile, seed, data_file
    and the preset's own choices.
    """
    values = read_toml(path)
    start = values.pop("preset", None)
    if start is None:
        config = from_mapping(values, source=str(path))
        return override(config, assignments) if assignments else config
    setting = values.pop("setting", None)
    if not isinstance(start, Mapping) or not isinstance(setting, str):
        raise ConfigError(f"{path}: [preset] must be a table, and 'setting' must name its setting.")
    given = {key: str(value) for key, value in start.items() if key in _GIVEN and key != "seed"}
    choices = [f"{key}={value}" for key, value in start.items() if key not in _GIVEN]
    known = [*_GIVEN, *_choices(_find_preset(setting))]
    faults = [unknown_key(f"preset.{key}", known) for key in start if key not in known]
    if faults:
        raise faults_error(faults, str(path))
    changes = [f"{key}={_text(value)}" for key, value in flatten(values).items()]
    seed = start.get("seed", 0)
    if type(seed) is not int:
        raise ConfigError(f"{path}: preset.seed: expected an integer, got {seed!r}.")
    return make_run(
        setting, **given, seed=seed, assignments=[*choices, *changes, *assignments], source=str(path)
    )


def _find_preset(setting: str) -> Callable[..., RunConfig]:
    find_task(setting)  # so that an unknown name is called so
    module = importlib.import_module(f"aaren.engine.presets.{setting}" if setting in TASKS else setting)
    if not hasattr(module, "preset"):
        raise ConfigError(
            f"{module.__name__} has no preset: write a run.toml and use `aaren train run.toml`."
        )
    return cast("Callable[..., RunConfig]", module.preset)


def _choices(preset: Callable[..., RunConfig]) -> dict[str, object]:
    """Return the preset's own keyword arguments and their types."""
    hints = get_type_hints(preset)
    return {name: hints[name] for name in inspect.signature(preset).parameters if name not in _GIVEN}


def _split(
    preset: Callable[..., RunConfig], assignments: Sequence[str], source: str
) -> tuple[dict[str, object], list[str]]:
    """Tell the choices that the preset itself takes from the keys of its result."""
    kinds = _choices(preset)
    taken: dict[str, object] = {}
    rest: list[str] = []
    faults: list[str] = []
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        name = key.strip().removeprefix("task.")
        if name not in kinds or not sign:
            rest.append(assignment)
            continue
        try:
            taken[name] = read_text(kinds[name], Text(text.strip()))
        except WrongValueError as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise faults_error(faults, source)
    return taken, rest


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    module = importlib.import_module(f"aaren.engine.presets.{setting}" if setting in TASKS else setting)
    return cast("Callable[[str], Sequence[Block]] | None", getattr(module, "grid", None))


def dataset_name(dataset: str, setting: str) -> str:
    """Return a dataset's name as the registry spells it; empty stays empty, for runs on a user's own file."""
    if not dataset:
        return ""
    found = lookup(dataset)
    if found.setting != setting:
        raise ConfigError(
            f"{found.name} is a dataset of {found.setting}; for {setting}: aaren data list {setting}."
        )
    return found.name
