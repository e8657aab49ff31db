"""The setting as the engine sees it; everything heavy is imported when it is asked for."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from aaren.datasets.dataset import Dataset, Fact
from aaren.engine.setting import Setting
from aaren.errors import DataError, unknown_name

if TYPE_CHECKING:
    from torch import nn

    from aaren.engine.experiment import Experiment, Json
    from aaren.events.batches import EventBatch
    from aaren.events.config import EventsConfig
    from aaren.stream.rows import RowPath


class EventSetting(Setting["EventsConfig", "EventBatch"]):
    """Event forecasting as the paper's section 4.2 and its base code do it."""

    name = "events"
    grid_place = 1
    suffixes = (".parquet", ".json", ".jsonl")
    saved_models = ("EventModel", "EventReference")
    reports = ("test.nll", "test.rmse", "test.accuracy")  # the last is NaN where there are no marks
    higher_is_better = ("test.accuracy",)
    protocols = MappingProxyType({"smoke": 2, "cpu": 2, "paper": 2})  # docs/events.md says what each means

    @property
    def config_type(self) -> "type[EventsConfig]":
        from aaren.events.config import EventsConfig

        return EventsConfig

    def make_experiment(self, config: "EventsConfig", *, seed: int) -> "Experiment[EventBatch]":
        from aaren.events.experiment import EventsExperiment, open_events

        return EventsExperiment(config, open_events(config), seed=seed)

    def cell(self, config: "EventsConfig") -> Mapping[str, str | int]:
        cell = {"dataset": config.dataset or Path(config.data_file).stem, "model": config.model}
        return cell if config.censoring == "protocol" else {**cell, "rule": "clean"}

    def check_file(self, path: Path, *, allow_irregular: bool = False) -> Mapping[str, Fact]:
        from aaren.events.files import read

        del allow_irregular
        try:
            return dict(read(path).counts())
        except DataError as error:
            cure = "Name the columns: --column time=NAME --column sequence=NAME --column mark=NAME"
            raise DataError(str(error).replace("Name the columns with Columns(...)", cure)) from error

    def check_table(self, path: Path, columns: Mapping[str, str]) -> Mapping[str, Fact]:
        from aaren.events.files import Columns, read

        roles = [field.name for field in fields(Columns)]
        for role in columns:
            if role not in roles:
                raise unknown_name("column of events", role, roles)
        return dict(read(path, columns=Columns(**columns)).counts())

    def make(self, dataset: Dataset, *, seed: int) -> Path:
        from aaren.events.data import make

        return make(dataset.name, seed=seed)

    def shape(self, fact: Callable[[str], str], facts: Mapping[str, Fact]) -> str:
        marks = "no marks" if facts.get("marks") == 1 else f"{fact('marks')} marks"
        return f"{fact('events')} events in {fact('sequences')}, {marks}"

    def stream_rows(self, model: "nn.Module", preprocessing: "Mapping[str, Json]") -> "RowPath":
        from aaren.events.predict import EventRows

        return EventRows(model, preprocessing)


SETTING = EventSetting()
