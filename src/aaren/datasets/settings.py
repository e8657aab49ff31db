"""Find a setting by its name: the paper's four, or one that an installed package or the user brings.

A setting is a package with a `SETTING`. The four are listed here; a fifth is found through the entry-point
group `aaren.settings`, or in a module that a person names on a command line or imports. A name read from a
file never chooses what is imported.
"""

import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from aaren.datasets.dataset import Dataset, Fact
from aaren.errors import ConfigError, unknown_name

BUILT_IN = ("forecasting", "classification", "events", "rl")  # packages of this one
GROUP = "aaren.settings"


class DataSetting(Protocol):
    """What datasets and saved models ask of a setting; training asks for more (`aaren.engine.setting`)."""

    name: str
    title: str  # "Time-series forecasting"
    datasets: tuple[Dataset, ...]  # rows beside those of the catalogue
    suffixes: tuple[str, ...]  # of a user's own files that can be of no other setting
    saved_models: tuple[str, ...]  # classes in the setting's package that can be saved and loaded

    @property
    def package(self) -> object:
        """Return the module or package in which the setting and its models are."""

    def measure(self, dataset: Dataset) -> Mapping[str, Fact]:
        """Open the files of a dataset and return the facts found."""

    def check_file(self, path: Path, *, allow_irregular: bool) -> Mapping[str, Fact]:
        """Read a user's own file strictly and return what is in it."""

    def check_table(self, path: Path, columns: Mapping[str, str]) -> Mapping[str, Fact]:
        """Read a user's own table whose columns have other names, and return what is in it."""

    def make(self, dataset: Dataset, *, seed: int) -> Path:
        """Write a generated dataset into the data folder."""

    def shape(self, fact: Callable[[str], str], facts: Mapping[str, Fact]) -> str:
        """Describe the size of a dataset in a few words."""


def setting_names() -> tuple[str, ...]:
    """Return the names of all installed settings, the paper's first."""
    return (*BUILT_IN, *installed_settings())


@cache
def installed_settings() -> dict[str, DataSetting]:
    """Load the settings that other packages offer; one under a name of ours is left out."""
    return {point.name: point.load() for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def find_setting(name: str) -> DataSetting:
    """Return an installed setting, or one in a module that is imported already.

    Names come from files too, and no file may choose what is imported: that is for `import_setting`.
    """
    if name in installed_settings():
        return installed_settings()[name]
    if name in BUILT_IN:
        module = importlib.import_module(f"aaren.{name}")
    elif name in sys.modules:
        module = sys.modules[name]
    elif "." not in name:
        raise unknown_name("setting", name, setting_names())
    else:
        raise ConfigError(
            f"setting {name!r} is none of {', '.join(setting_names())}, and a file may not choose what is "
            f"imported. If you trust that module, name it yourself: `aaren --import {name} ...`, or import "
            "it in Python."
        )
    if not hasattr(module, "SETTING"):
        raise ConfigError(
            f"setting {name!r}: the module {name} has no SETTING, an instance of a subclass of Setting."
        )
    return cast("DataSetting", module.SETTING)


def import_setting(name: str) -> DataSetting:
    """Return a setting that the user names; a module of their own is imported."""
    if "." in name and name not in setting_names():
        import_own(name, purpose=f"setting {name!r}")
    return find_setting(name)


def import_own(name: str, *, purpose: str) -> ModuleType:
    """Import a module that the user names, or say in a line why it cannot be."""
    known = ", ".join(setting_names())
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{purpose}: {name!r} is no name of a module, such as package.module. Settings: {known}."
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{purpose}: there is no module {error.name!r} to import. Settings: {known}."
            ) from error
        raise ConfigError(f"{purpose}: it needs {error.name!r}, which is not installed.") from error
    except Exception as error:  # code of the user's own: whatever it raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{purpose}: importing {name} failed in {last.filename}, line {last.lineno}: "
            f"{type(error).__name__}: {error}"
        ) from error
