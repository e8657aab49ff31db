"""The setting as the engine sees it; everything heavy is imported when it is asked for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aaren.datasets.dataset import Fact
from aaren.engine.setting import Setting
from aaren.errors import DataError
from aaren.files.archive import plain_name

if TYPE_CHECKING:
    from torch import nn

    from aaren.classification.batches import LabelledBatch
    from aaren.classification.config import ClassificationConfig
    from aaren.engine.experiment import Experiment, Json
    from aaren.stream.rows import RowPath


class ClassificationSetting(Setting["ClassificationConfig", "LabelledBatch"]):
    """Classification as the paper's section 4.4 and the Time-Series-Library do it."""

    name = "classification"
    grid_place = 2
    suffixes = (".ts",)
    saved_models = ("Classifier", "ReferenceClassifier", "FeatureClassifier")
    reports = ("test.accuracy",)
    higher_is_better = reports

    @property
    def config_type(self) -> "type[ClassificationConfig]":
        from aaren.classification.config import ClassificationConfig

        return ClassificationConfig

    def make_experiment(self, config: "ClassificationConfig", *, seed: int) -> "Experiment[LabelledBatch]":
        from aaren.classification.experiment import ClassificationExperiment, open_parts

        return ClassificationExperiment(config, open_parts(config, seed=seed), seed=seed)

    def cell(self, config: "ClassificationConfig") -> Mapping[str, str | int]:
        dataset = config.dataset or Path(config.data_file).name.split(".")[0]
        return {"dataset": dataset, "model": config.model, "rule": config.rule, "recipe": config.recipe}

    def check_file(self, path: Path, *, allow_irregular: bool = False) -> Mapping[str, Fact]:
        from aaren.classification.data import (
            find_test_part,
            read_ts,
            require_series,
            require_trainable,
            scale_parts,
        )

        train = _training_file(path) if path.is_dir() else path
        test = find_test_part(train)
        parts = {plain_name(part): read_ts(part) for part in (train, test) if part is not None}
        if "_TEST." in train.name:  # a test part alone: nothing is to be learned from it
            require_series(parts[plain_name(train)], name=plain_name(train), allow_irregular=allow_irregular)
        else:
            require_trainable(parts, allow_irregular=allow_irregular)
        found = scale_parts(
            list(parts.values()), name=train.name, standardise="train", allow_irregular=allow_irregular
        )
        sizes = dict(zip(("train", "test"), map(len, found.cases), strict=False))
        return {
            **sizes,
            "channels": len(found.mean),
            "length": found.length,
            "classes": len(found.classes),
        }

    def shape(self, fact: Callable[[str], str], facts: Mapping[str, Fact]) -> str:
        test = f"+{fact('test')}" if "test" in facts else ""
        return f"{fact('train')}{test} × {fact('channels')} × {fact('length')}, {fact('classes')} classes"

    def stream_rows(self, model: "nn.Module", preprocessing: "Mapping[str, Json]") -> "RowPath":
        from aaren.classification.predict import SampleRows

        return SampleRows(model, preprocessing)


def _training_file(folder: Path) -> Path:
    found = sorted(item for item in folder.iterdir() if plain_name(item).endswith("_TRAIN.ts"))
    if len(found) != 1:
        raise DataError(f"{folder}: expected one file NAME_TRAIN.ts (plain, .gz or .xz); found {len(found)}.")
    return found[0]


SETTING = ClassificationSetting()
