from typing import Any, get_args

import pytest

from aaren.classification.config import ClassificationConfig, ModelName
from aaren.classification.presets import grid
from aaren.engine.config import RunConfig
from aaren.engine.presets import make_run
from aaren.errors import ConfigError


def made(
    *assignments: str, dataset: str = "JapaneseVowels", **options: Any
) -> tuple[RunConfig, ClassificationConfig]:
    run = make_run("classification", dataset, assignments=assignments, **options)
    assert isinstance(run.task, ClassificationConfig)
    return run, run.task


def test_the_paper_profile_is_the_published_one() -> None:
    run, task = made(profile="paper")
    assert task == ClassificationConfig(dataset="JapaneseVowels")  # whose defaults are the published ones
    assert (task.network.width, task.network.num_heads, task.network.ff_width) == (128, 8, 256)
    assert (task.network.num_layers, task.network.dropout, task.network.head) == (3, 0.1, "flattened")
    assert (task.batch_size, task.epochs, task.patience, task.clip_norm) == (16, 100, 10, 4.0)
    assert (task.optimiser.name, task.optimiser.learning_rate, task.schedule) == ("radam", 1e-3, "halving")
    assert (task.rule, task.standardise, task.updates_per_epoch) == ("protocol", "protocol", None)
    assert dict(run.cell()) == {
        "dataset": "JapaneseVowels",
        "model": "aaren",
        "rule": "protocol",
        "recipe": "radam-halving",
    }


@pytest.mark.parametrize("model", get_args(ModelName))
@pytest.mark.parametrize("profile", ["smoke", "cpu", "paper"])
def test_every_cell_can_be_made(model: str, profile: str) -> None:
    run, task = made(model=model, profile=profile, dataset="handwriting")
    assert (task.model, task.dataset, run.profile) == (model, "Handwriting", profile)
    assert task.standardise == ("train" if model.endswith(("-causal", "-features")) else "protocol")


def test_the_clean_rule_also_standardises_by_train() -> None:
    run, task = made("rule=clean", profile="paper")
    assert (task.rule, task.standardise) == ("clean", "train")
    assert run.changed == ()
    assert "clean" in run.folder_name()


@pytest.mark.parametrize(
    ("recipe", "optimiser", "schedule"),
    [("adam-halving", "adam", "halving"), ("radam-constant", "radam", "constant")],
)
def test_the_historical_states(recipe: str, optimiser: str, schedule: str) -> None:
    run, task = made(f"recipe={recipe}", profile="paper")
    assert (task.optimiser.name, task.schedule) == (optimiser, schedule)
    assert run.cell()["recipe"] == recipe


def test_ones_own_file_is_judged_cleanly() -> None:
    _, task = made(dataset="", data_file="mine_TRAIN.ts")
    assert (task.rule, task.standardise, task.data_file) == ("clean", "train", "mine_TRAIN.ts")


def test_what_is_unknown_is_said() -> None:
    with pytest.raises(ConfigError, match="unknown model 'minirockt'; did you mean 'minirocket'"):
        made(model="minirockt")
    with pytest.raises(ConfigError, match="ETTh1 is a dataset of forecasting"):
        made(dataset="ETTh1")
    with pytest.raises(ConfigError, match="rule: expected one of 'protocol', 'clean'"):
        made("rule=fair")
    with pytest.raises(ConfigError, match="recipe: expected one of 'adam-halving'"):
        made("recipe=sgd")


def test_every_dataset_of_the_table_has_a_row_with_the_published_optimiser() -> None:
    def datasets(*choice: str) -> list[str]:
        found = [group for group in grid("paper") if choice in group.choices]
        return [
            name
            for group in found
            if set(group.models) >= {"aaren", "transformer"}
            for name in group.datasets
        ]

    assert datasets("recipe=adam-halving") == datasets()
    assert len(datasets()) == 10
