"""RunConfig: everything that decides what a run computes; read from JSON or TOML, changed by `key=value`.

What is inside `task` is the setting's own config.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from aaren.engine.setting import find_setting
from aaren.errors import ConfigError, unknown_name
from aaren.fields import Text, build, faults_error, flatten, to_mapping, unknown_key

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
else:
    DataclassInstance = object  # so that the annotations can be read at run time


PROFILES = ("smoke", "cpu", "paper")
Profile: TypeAlias = Literal["smoke", "cpu", "paper", "custom"]
MAX_THREADS = 1024
MAX_SEED = 2**63 - 1
Device: TypeAlias = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """How a run is computed; with `deterministic`, the same numbers every time."""

    device: Device = "auto"
    threads: int = 0  # of torch, fixed for the whole run; 0: what torch chooses when the run begins
    deterministic: bool = True
    checkpoint_seconds: float = 30.0  # at least so long between checkpoints; 0: after every update
    predictions: bool = False  # keep what the model says about the test part

    def __post_init__(self) -> None:
        """Report a device that does not exist, and every number that cannot be."""
        if self.device not in get_args(Device):
            raise unknown_name("device", str(self.device), get_args(Device))
        faults = []
        if not 0 <= self.threads <= MAX_THREADS:
            faults.append(f"threads must be 0 to {MAX_THREADS}; got {self.threads}")
        if not self.checkpoint_seconds >= 0.0:
            faults.append(f"checkpoint_seconds must be 0 or more; got {self.checkpoint_seconds}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """One run: a setting, its config, a seed, and how it is computed."""

    setting: str
    task: DataclassInstance  # an instance of the setting's config_type
    profile: Profile = "custom"
    seed: int = 0
    protocol: int = 0  # of the setting at that profile; 0: today's. See `Setting.protocol`
    changed: tuple[str, ...] = ()  # keys that were set by hand on top of the profile
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        """Report a seed that random generators do not take; find today's protocol."""
        if not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"seed must be 0 to {MAX_SEED}; got {self.seed}.")
        if self.protocol < 0:
            raise ConfigError(f"protocol must be 1 or more, or left out; got {self.protocol}.")
        if not self.protocol:
            object.__setattr__(self, "protocol", self.todays_protocol())

    def todays_protocol(self) -> int:
        """Return the protocol by which this version of the library computes the run's model and profile."""
        task: object = self.task  # None while the faults of a config are collected
        model = "" if task is None else self.cell().get("model", "")
        return find_setting(self.setting).protocol(self.profile, str(model))

    def cell(self) -> Mapping[str, str | int]:
        """Say where in a table this run stands."""
        return find_setting(self.setting).cell(self.task)

    def digest(self) -> str:
        """Return eight hexadecimal digits that change with the config."""
        text = json.dumps(to_mapping(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def folder_name(self) -> str:
        """Name a run folder after what tells runs apart: `ETTh1-96-aaren-cpu-seed0-1a2b3c4d`."""
        words = [*map(str, self.cell().values()), self.profile, f"seed{self.seed}", self.digest()]
        return "-".join("".join(c if c.isalnum() or c in "._" else "_" for c in word) for word in words)


def read_config(path: Path) -> dict[str, object]:
    """Read a file of a run, TOML or, with the suffix `.json`, JSON, as a mapping."""
    kind = "JSON" if path.suffix == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(
            f"no file {path}. Write one, or use a preset: aaren train SETTING DATASET."
        ) from error
    except (ValueError, RecursionError, IsADirectoryError) as error:
        raise ConfigError(f"{path} is not {kind}: {error}.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is no config: expected keys and values, got {type(values).__name__}.")
    return values


def from_mapping(
    values: Mapping[str, object], *, source: str = "the config", faults: Sequence[str] = ()
) -> RunConfig:
    """Build a run from nested mappings; every fault is reported, all in one error, those known before too."""
    setting = values.get("setting")
    if not isinstance(setting, str):
        raise ConfigError(f"{source}: 'setting' is missing; give it, as setting = \"forecasting\" in TOML.")
    known_faults = list(faults)
    rest = {key: value for key, value in values.items() if key != "task"}
    table = values.get("task", {})
    task = None
    if isinstance(table, Mapping):
        task = build(find_setting(setting).config_type, table, known_faults, path="task.")
    else:
        known_faults.append(f"task: expected a table of keys, got {table!r}")
    config = build(RunConfig, rest, known_faults, given={"task": task})
    if config is None or known_faults:
        raise faults_error(known_faults, source)
    return config


def override(config: RunConfig, assignments: Sequence[str], *, source: str = "--set") -> RunConfig:
    """Change values by `key=value`, as `--set` does; types come from the config.

    A key is a full path (`engine.threads`), a path inside the setting's config (`horizon`), or the end of
    exactly one path (`width` for `task.model.width`).
    """
    mapping = to_mapping(config)
    if config.protocol == config.todays_protocol():
        del mapping["protocol"]  # the profile may change
    known = [key for key in flatten(mapping) if key not in ("setting", "changed", "protocol")]
    faults: list[str] = []
    changed = list(config.changed)
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        if not sign:
            faults.append(f"{assignment!r} is no assignment: write key=value")
            continue
        matches = find_key(key.strip(), known)
        if len(matches) != 1:
            several = f"{key.strip()!r} could be any of {', '.join(matches)}: write more of the path"
            faults.append(several if matches else unknown_key(key.strip(), [_short(name) for name in known]))
            continue
        place = mapping
        *tables, last = matches[0].split(".")
        for name in tables:
            place = cast("dict[str, object]", place[name])
        place[last] = Text(text.strip())
        if matches[0] not in ("seed", *changed):
            changed.append(matches[0])
    if config.profile != "custom":
        mapping["changed"] = changed
    return from_mapping(mapping, source=source, faults=faults)


def find_key(key: str, known: Sequence[str]) -> list[str]:
    """Find the full paths that a possibly shortened key can mean.

    >>> find_key("width", ["seed", "task.model.width"]), find_key("seed", ["seed", "task.seed"])
    (['task.model.width'], ['seed'])
    """
    for exact in (key, f"task.{key}"):
        if exact in known:
            return [exact]
    return [name for name in known if name.endswith(f".{key}")]


def to_json(config: RunConfig) -> str:
    """Write a run as JSON that `aaren train FILE.json` repeats."""
    return json.dumps(to_mapping(config), indent=1) + "\n"


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """List the keys in which two configs, as mappings, differ, with both values.

    >>> differences({"seed": 0, "task": {"epochs": 3}}, {"seed": 1, "task": {"epochs": 3}})
    ['seed: 0, now 1']
    """
    before, after = flatten(old), flatten(new)
    return [
        f"{key}: {before.get(key, 'absent')}, now {after.get(key, 'absent')}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key, "absent") != after.get(key, "absent")
    ]


def _short(key: str) -> str:
    return key.removeprefix("task.")
