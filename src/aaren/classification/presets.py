"""Ready-made classification runs: dataset x model x reporting rule x profile.

paper   the published hyper-parameters, exactly; runs on a CPU
cpu     the same protocol with a narrower model and shorter epochs: minutes on a core
smoke   a smoke test of seconds; JapaneseVowels comes inside aeon and needs no file
"""

from typing import Literal, TypeAlias, cast

from aaren.classification.config import ClassificationConfig, ModelName, NetworkConfig, Rule
from aaren.datasets.catalogue import DATASETS
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.presets import dataset_name
from aaren.engine.setting import CellGroup

# Optimiser and schedule of the Time-Series-Library: until 2024-04-25, at the paper's date, from 2024-07-14.
Recipe: TypeAlias = Literal["adam-halving", "radam-halving", "radam-constant"]


def preset(
    dataset: str,
    *,
    model: str = "aaren",
    profile: str = "cpu",
    data_file: str = "",
    rule: Rule | None = None,
    recipe: Recipe = "radam-halving",
) -> ClassificationConfig:
    """Return the config of one cell of the table.

    Args:
        dataset: A name of the catalogue, in any spelling of capitals; empty with a data_file.
        model: A `ModelName`; `-causal` ones can be streamed.
        profile: paper, cpu or smoke.
        data_file: A NAME_TRAIN.ts file of the user's own.
        rule: What chooses the epoch: `protocol` (TEST, as published) or `clean` (a held-out part of TRAIN).
            Default: protocol for a dataset, clean for a data_file.
        recipe: Optimiser and schedule, one of three; the default is that of the paper's date.
    """
    rule = rule or ("clean" if data_file else "protocol")
    optimiser, _, schedule = recipe.partition("-")
    is_published = rule == "protocol" and not model.endswith(("-causal", "-features")) and not data_file
    return ClassificationConfig(
        dataset=dataset_name(dataset, "classification"),
        data_file=data_file,
        model=cast("ModelName", model),
        rule=rule,
        standardise="protocol" if is_published else "train",
        network=_network(profile),
        optimiser=OptimiserConfig(name=optimiser, learning_rate=1e-3),
        schedule=cast("Literal['halving', 'constant']", schedule),
        epochs={"paper": 100, "cpu": 20, "smoke": 2}[profile],
        updates_per_epoch={"paper": None, "cpu": 100, "smoke": 10}[profile],
    )


def grid(profile: str) -> tuple[CellGroup, ...]:
    """Return the table under the protocol's rule, with RAdam and with Adam; then other rules and recipes.

    The published levels are those of Adam: its rows are the ones to compare with the paper's.
    """
    both, references = ("aaren", "transformer"), ("majority", "dtw", "minirocket")
    if profile == "smoke":
        quick = ("majority", "minirocket")
        return (CellGroup(datasets=("JapaneseVowels",), models=(*both, *quick), seedless=("majority",)),)
    datasets = tuple(row.name for row in DATASETS if row.setting == "classification")
    return (
        CellGroup(datasets=datasets, models=(*both, *references), seedless=("majority", "dtw")),
        CellGroup(datasets=datasets, models=both, choices=(("recipe=adam-halving",),)),
        CellGroup(datasets=(*datasets, "heartbeat-train"), models=both, choices=(("rule=clean",),)),
        CellGroup(datasets=datasets, models=("aaren-causal", "transformer-causal", "aaren-features")),
        CellGroup(
            datasets=("JapaneseVowels", "UWaveGestureLibrary"),
            models=both,
            choices=(("recipe=radam-constant",),),
        ),
    )


def _network(profile: str) -> NetworkConfig:
    if profile == "paper":
        return NetworkConfig()
    if profile == "cpu":
        return NetworkConfig(width=64, num_heads=4, ff_width=128, num_layers=2)
    return NetworkConfig(width=16, num_heads=2, ff_width=32, num_layers=1)
