"""A setting: its config, presets and grid, how to open it, what it is judged by, how to use what was trained.

`SETTING` of a setting's package is an instance. Its methods import what they need when they are called, so
that listing datasets or checking a file never waits for torch.
"""

import importlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from aaren.datasets import settings
from aaren.datasets.dataset import Dataset, Fact
from aaren.errors import ConfigError
from aaren.files.archive import noting_checksums

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from torch import nn

    from aaren.engine.config import EngineConfig
    from aaren.engine.experiment import Batch, Experiment, Json
    from aaren.stream.rows import RowPath

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
    datasets: tuple[Dataset, ...] = ()  # rows beside those of the catalogue
    suffixes: tuple[str, ...] = ()  # of a user's own files that can be of no other setting
    saved_models: tuple[str, ...] = ()  # classes in the setting's package that can be saved and loaded
    data_ids: str = ""  # what the user's own data may be besides a file: "the id of a Minari dataset"
    reports: tuple[str, ...]  # the published numbers: "test.mse", "best.score" (best or last validation)
    higher_is_better: tuple[str, ...] = ()  # of the reports; of all others less is better
    grid_place: int = 0  # in a grid of several settings, cells of lower ones are run first
    protocols: Mapping[str, int] = MappingProxyType({})  # by profile, or profile/model; see `protocol`

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
    def preset(self) -> "Callable[..., ConfigT]":
        """Return `presets.preset`: `preset(dataset, *, model, profile, data_file, ...)` makes a config.

        Keyword arguments of its own are choices that other values depend on: `--set` gives them to the preset
        and applies all other keys to its result.
        """
        return cast("Callable[..., ConfigT]", self._submodule("presets").preset)

    def engine(self, profile: str) -> "EngineConfig":
        """Return how runs of a profile are computed, unless they are told otherwise."""
        del profile
        from aaren.engine.config import EngineConfig

        return EngineConfig()

    def grid(self, profile: str) -> tuple[CellGroup, ...]:
        """Return `presets.grid(profile)`: the cells of the setting's tables, the paper's first.

        A setting that is one module has no cells unless it says so.
        """
        if self.package is sys.modules[type(self).__module__]:
            return ()
        return cast("tuple[CellGroup, ...]", self._submodule("presets").grid(profile))

    def protocol(self, profile: str, model: str = "") -> int:
        """Return the number of what a run of a model at a profile means today; 1 where `protocols` has none.

        It is raised whenever a change of code, presets or data makes new runs incomparable with old ones:
        `{"cpu": 2}` for all models, `{"cpu/linear": 2}` for one. Runs by an older protocol never share a row
        with today's, and do not count for them. A run of no profile follows the newest.
        """
        numbers = {
            name.removesuffix(f"/{model}"): number
            for name, number in sorted(self.protocols.items())  # a model's own come after those of all
            if "/" not in name or name.endswith(f"/{model}")
        }
        newest = max(numbers.values(), default=1) if profile == "custom" else 1
        return numbers.get(profile, newest)

    def measure(self, dataset: Dataset) -> Mapping[str, Fact]:
        """Return `data.measure(dataset)`: open the files of a dataset and count, for `aaren data verify`."""
        return cast("Mapping[str, Fact]", self._submodule("data").measure(dataset))

    def check_file(self, path: Path, *, allow_irregular: bool = False) -> Mapping[str, Fact]:
        """Read a user's own file strictly and return what is in it; a fault raises."""
        del allow_irregular
        raise ConfigError(f"{self.name} reads no files of its own; {path.name} was not checked.")

    def check_table(self, path: Path, columns: Mapping[str, str]) -> Mapping[str, Fact]:
        """Read a user's own table whose columns have other names; a fault raises."""
        raise ConfigError(
            f"{self.name} has no columns to name; leave out --column {next(iter(columns))}=... "
            f"for {path.name}."
        )

    def make(self, dataset: Dataset, *, seed: int) -> Path:
        """Write a generated dataset into the data folder, for use outside this library."""
        del seed
        raise ConfigError(f"{dataset.name} is generated in memory only.")

    def shape(self, fact: Callable[[str], str], facts: Mapping[str, Fact]) -> str:
        """Describe the size of a dataset in a few words; `fact` gives one by its name, formatted."""
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
        """Read a user's new data from `source` and write the model's predictions to `target`.

        That is `predict.predict_file` of the setting's package.
        """
        name = f"{type(self).__module__.rpartition('.')[0]}.predict"
        if self.package is sys.modules[type(self).__module__] or importlib.util.find_spec(name) is None:
            raise ConfigError(f"the setting {self.name!r} has no `aaren predict`.")
        self._submodule("predict").predict_file(model, config, preprocessing, source=source, target=target)

    def stream_rows(self, model: "nn.Module", preprocessing: "Mapping[str, Json]") -> "RowPath":
        """Return the way from a raw row to an answer of the model's streams, for `aaren stream`."""
        del model, preprocessing
        raise ConfigError(f"the setting {self.name!r} has no `aaren stream`.")

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
