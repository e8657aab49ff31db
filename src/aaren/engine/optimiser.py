"""OptimiserConfig: which optimiser, with which numbers. The schedule belongs to the plan."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from aaren.errors import ConfigError, unknown_name

OPTIMISERS = ("adam", "adamw", "radam", "sgd")


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimiserConfig:
    """What the four settings need of an optimiser.

    >>> type(OptimiserConfig(name="radam", learning_rate=1e-3).build(nn.Linear(2, 1))).__name__
    'RAdam'
    """

    name: str = "adam"  # adam, adamw, radam, sgd
    learning_rate: float = 1e-4  # the highest; schedules scale it
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Report every number that no optimiser takes."""
        if self.name not in OPTIMISERS:
            raise unknown_name("optimiser", self.name, OPTIMISERS)
        faults = []
        if not 0.0 < self.learning_rate < math.inf:
            faults.append(f"learning_rate must be above 0; got {self.learning_rate}")
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                faults.append(f"{name} must be at least 0 and below 1; got {getattr(self, name)}")
        for name in ("eps", "weight_decay"):
            if not 0.0 <= getattr(self, name) < math.inf:
                faults.append(f"{name} must be 0 or more; got {getattr(self, name)}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")

    def build(self, model: nn.Module) -> Optimizer:
        """Build the optimiser of all parameters that want gradients."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        betas, decay = (self.beta1, self.beta2), self.weight_decay
        if self.name == "sgd":
            return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.beta1, weight_decay=decay)
        if self.name == "radam":
            return torch.optim.RAdam(
                parameters, lr=self.learning_rate, betas=betas, eps=self.eps, weight_decay=decay
            )
        kind = torch.optim.Adam if self.name == "adam" else torch.optim.AdamW
        # One kernel over all parameters: on a CPU several times faster than one call per operation.
        return kind(
            parameters, lr=self.learning_rate, betas=betas, eps=self.eps, weight_decay=decay, fused=True
        )
