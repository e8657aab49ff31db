"""Make a run from a setting's preset, or from a file that starts from one, as `aaren train` does."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast, get_args, get_type_hints

from aaren.datasets.catalogue import lookup
from aaren.engine.config import PROFILES, Profile, RunConfig, from_mapping, override, read_config
from aaren.engine.setting import find_setting, import_setting
from aaren.errors import ConfigError, unknown_name
from aaren.fields import Text, WrongValueError, faults_error, flatten, is_writable, read_text, unknown_key

__all__ = ["load_run", "make_run"]

_OF_ALL = ("dataset", "model", "profile", "seed", "data_file")


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
        setting: forecasting, classification, events, rl, or a user's own module with SETTING and preset.
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
    module_setting = import_setting(setting)
    models = get_args(get_type_hints(module_setting.config_type).get("model"))
    if models and model not in models:
        raise unknown_name("model", model, models)
    if profile not in PROFILES:
        raise ConfigError(f"profile must be one of {', '.join(PROFILES)}; got {profile!r}.")
    if not dataset and not data_file:
        raise ConfigError(f"name a dataset (aaren data list {setting}) or give your own: --data FILE.")
    if dataset and data_file:
        raise ConfigError(f"both a dataset ({dataset}) and --data {data_file} were given: choose one.")
    choices, rest = _split(module_setting.preset, assignments, source)
    config = RunConfig(
        setting=module_setting.name,
        task=module_setting.preset(dataset, model=model, profile=profile, data_file=data_file, **choices),
        profile=cast("Profile", profile),
        seed=seed,
        engine=module_setting.engine(profile),
    )
    return override(config, rest, source=source) if rest else config


def load_run(path: Path, assignments: Sequence[str] = ()) -> RunConfig:
    """Read a run's file, TOML or JSON; a table [preset] names the preset that the other keys change.

    All keys of the file stand as in a written run; `[preset]` takes dataset, model, profile, seed, data_file
    and the preset's own choices.
    """
    values = read_config(path)
    start = values.pop("preset", None)
    if start is None:
        config = from_mapping(values, source=str(path))
        return override(config, assignments) if assignments else config
    setting = values.pop("setting", None)
    if not isinstance(start, Mapping) or not isinstance(setting, str):
        raise ConfigError(f"{path}: [preset] must be a table, and 'setting' must name its setting.")
    arguments = {key: str(value) for key, value in start.items() if key in _OF_ALL and key != "seed"}
    choices = [f"{key}={value}" for key, value in start.items() if key not in _OF_ALL]
    known = [*_OF_ALL, *_choices(find_setting(setting).preset)]
    faults = [unknown_key(f"preset.{key}", known) for key in start if key not in known]
    if faults:
        raise faults_error(faults, str(path))
    changes = [f"{key}={_text(value)}" for key, value in flatten(values).items()]
    seed = start.get("seed", 0)
    if type(seed) is not int:
        raise ConfigError(f"{path}: preset.seed: expected an integer, got {seed!r}.")
    return make_run(
        setting, **arguments, seed=seed, assignments=[*choices, *changes, *assignments], source=str(path)
    )


def _choices(preset: Callable[..., object]) -> dict[str, object]:
    """Return the preset's own keyword arguments and their types."""
    hints = get_type_hints(preset)
    return {name: hints[name] for name in inspect.signature(preset).parameters if name not in _OF_ALL}


def _split(
    preset: Callable[..., object], assignments: Sequence[str], source: str
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


def dataset_name(dataset: str, setting: str) -> str:
    """Return a dataset's name as the registry spells it; empty stays empty, for runs on a user's own file."""
    if not dataset:
        return ""
    row = lookup(dataset)
    if row.setting != setting:
        raise ConfigError(
            f"{row.name} is a dataset of {row.setting}; for {setting}: aaren data list {setting}."
        )
    return row.name
