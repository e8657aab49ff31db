import pytest
from torch import nn

from aaren.engine.optimiser import OptimiserConfig
from aaren.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", "Adam"), ("adamw", "AdamW"), ("radam", "RAdam"), ("sgd", "SGD")]
)
def test_every_name_builds(name: str, kind: str) -> None:
    optimiser = OptimiserConfig(name=name, learning_rate=0.5).build(nn.Linear(2, 1))
    assert type(optimiser).__name__ == kind
    assert optimiser.param_groups[0]["lr"] == 0.5


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    assert len(OptimiserConfig().build(model).param_groups[0]["params"]) == 1


def test_faults() -> None:
    with pytest.raises(ConfigError, match=r"unknown optimiser 'adm'; did you mean 'adam'"):
        OptimiserConfig(name="adm")
    with pytest.raises(ConfigError, match="learning_rate must be above 0; got 0"):
        OptimiserConfig(learning_rate=0.0)
