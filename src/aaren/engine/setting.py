"""A setting: its config, presets and grid, how to open it, what it is judged by, how to use what was trained.

`SETTING` of a setting's package is an instance. Its methods import what they need when they are called, so
that listing datasets or checking a file never waits for torch.
"""

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from aaren.datasets import settings
from aaren.datasets.dataset import Dataset, Fact
from aaren.errors import ConfigError
from aaren.files.archive import noting_checksums

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from torch import nn

    from aaren.engine.config import RunConfig
    from aaren.engine.experiment import Batch, Experiment, Json

ConfigT = TypeVar("ConfigT", bound="DataclassInstance")
BatchT = TypeVar("BatchT", bound="Batch")


@dataclass(frozen=True, kw_only=True, slots=True)
class CellGroup:
    """A product of datasets, models and choices; every cell is one `aaren train` per seed."""

    datasets: tuple[str, ...]
    models: tuple[str, ...]  # in the order in which they are run
    choices: tuple[tuple[str, ...], ...] = ((),)  # each: `KEY=VALUE`, as after --set
    seedless: tuple[str, ...] = ()  # models that draw nothing at random: seed 0 says it all
    sweeps: tuple[str, ...] = ()  # asked of every trained run: `KEY=A,B,C`, as after evaluate --sweep


class Setting(ABC, Generic[ConfigT, BatchT]):
    """What the engine, the lab, the report and the command line know of a setting."""

    name: str
    title: str = ""  # "Time-series forecasting"
    short_title: str = ""  # "Forecasting": in menus and tables of the report
    report_note: str = ""  # above its tables in the report
    report_caution: str = ""  # the same, but wherever its numbers are shown, in README too
    datasets: tuple[Dataset, ...] = ()  # rows beside those of the catalogue
    suffixes: tuple[str, ...] = ()  # of a user's own files that can be of no other setting
    saved_models: tuple[str, ...] = ()  # classes in the setting's package that can be saved and loaded
    data_ids: str = ""  # what the user's own data may be besides a file: "the id of a Minari dataset"
    reports: tuple[str, ...]  # the published numbers: "test.mse", "best.score" (best or last validation)
    higher_is_better: tuple[str, ...] = ()  # of the reports; of all others less is better

    @property
    @abstractmethod
    def config_type(self) -> type[ConfigT]:
        """Return the config: a frozen keyword-only dataclass; fields may be dataclasses."""

    @abstractmethod
    def make_experiment(self, config: ConfigT, *, seed: int) -> "Experiment[BatchT]":
        """Read the data and get ready; the only place where files are looked for."""

    def open(self, config: ConfigT, *, seed: int) -> "Experiment[BatchT]":
        """Make the experiment; it knows the checksums of the bytes that were read for it."""
        with noting_checksums() as checksums:
            experiment = self.make_experiment(config, seed=seed)
        experiment.data_checksums = checksums
        return experiment

    @abstractmethod
    def cell(self, config: ConfigT) -> Mapping[str, str | int]:
        """Say where in a table this run stands: dataset, model and what else tells cells apart (horizon)."""

    @property
    def preset(self) -> "Callable[..., RunConfig]":
        """Return `presets.preset`: `preset(dataset, *, model, profile, seed, data_file, ...)` makes a run.

        Keyword arguments of its own are choices that other values depend on: `--set` gives them to the preset
        and applies all other keys to its result.
        """
        return cast("Callable[..., RunConfig]", self._submodule("presets").preset)

    def grid(self, profile: str) -> tuple[CellGroup, ...]:
        """Return `presets.grid(profile)`: the cells of the setting's tables, the paper's first.

        A setting that is one module has no cells unless it says so.
        """
        if self.package is sys.modules[type(self).__module__]:
            return ()
        return cast("tuple[CellGroup, ...]", self._submodule("presets").grid(profile))

    def measure(self, dataset: Dataset) -> Mapping[str, Fact]:
        """Return `data.measure(dataset)`: open the files of a dataset and count, for `aaren data verify`."""
        return cast("Mapping[str, Fact]", self._submodule("data").measure(dataset))

    def check_file(self, path: Path, *, allow_irregular: bool = False) -> Mapping[str, Fact]:
        """Read a user's own file strictly and return what is in it; a fault raises."""
        del allow_irregular
        raise ConfigError(f"{self.name} reads no files of its own; {path.name} was not checked.")

    def make(self, dataset: Dataset, *, seed: int) -> Path:
        """Write a generated dataset into the data folder, for use outside this library."""
        del seed
        raise ConfigError(f"{dataset.name} is generated in memory only.")

    def shape(self, fact: Callable[[str], str], facts: Mapping[str, Fact]) -> str:
        """Describe the size of a dataset in a few words; `fact` gives one for people by its name."""
        return ", ".join(f"{fact(name)} {name}" for name in facts)

    def predict(
        self,
        model: "nn.Module",
        config: ConfigT,
        preprocessing: "Mapping[str, Json]",
        *,
        source: Path,
        target: Path,
    ) -> None:
        """Read a user's new data from `source` and write the model's predictions to `target`."""
        del model, config, preprocessing, source, target
        raise ConfigError(f"the setting {self.name!r} has no `aaren predict`.")

    def save_model(self, model: "nn.Module", folder: Path) -> None:
        """Write a trained model so that it can be loaded without the data."""
        from aaren.stream.saved import save_model

        save_model(model, folder)

    def load_model(self, folder: Path) -> "nn.Module":
        """Read back what `save_model` wrote."""
        from aaren.stream.saved import load_model

        return load_model(folder)

    def _submodule(self, name: str) -> ModuleType:
        return importlib.import_module(f"{type(self).__module__.rpartition('.')[0]}.{name}")

    @property
    def package(self) -> object:
        """Return the module or package in which this setting and its models are."""
        home = type(self).__module__
        parent = sys.modules.get(home.rpartition(".")[0])
        return parent if getattr(parent, "SETTING", None) is self else sys.modules[home]


def find_setting(name: str) -> "Setting[DataclassInstance, Batch]":
    """Return an installed setting, or one in a module that is imported already."""
    return cast("Setting[DataclassInstance, Batch]", settings.find_setting(name))


def import_setting(name: str) -> "Setting[DataclassInstance, Batch]":
    """Return a setting that the user names; a module of their own is imported."""
    return cast("Setting[DataclassInstance, Batch]", settings.import_setting(name))
