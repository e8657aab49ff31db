"""What every policy must be measured against: random actions, and the policy that recorded the data.

Neither learns. `RandomPolicy` draws between the bounds; `BehaviourPolicy` only knows what the recorded
episodes collected.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.errors import unknown_name
from aaren.rl.model import ACTIONS


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferencePolicyConfig:
    """The kind and size of actions."""

    action_size: int = 1
    actions: str = "box"

    def __post_init__(self) -> None:
        """Report a setting that is unknown."""
        if self.actions not in ACTIONS:
            raise unknown_name("kind of actions", self.actions, ACTIONS)


class RandomPolicy(nn.Module):
    """Draw every action evenly between its bounds, or among the discrete ones.

    >>> policy = RandomPolicy(ReferencePolicyConfig(action_size=3, actions="discrete"))
    >>> sorted(set(policy.draw(100, np.random.default_rng(0)).tolist()))
    [0, 1, 2]
    """

    config_type: ClassVar[type[ReferencePolicyConfig]] = ReferencePolicyConfig
    low: Tensor
    high: Tensor

    def __init__(self, config: ReferencePolicyConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("low", -torch.ones(config.action_size, dtype=torch.float64))
        self.register_buffer("high", torch.ones(config.action_size, dtype=torch.float64))

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.float32] | NDArray[np.int64]:
        """Draw so many actions."""
        if self.config.actions == "discrete":
            return rng.integers(self.config.action_size, size=count)
        shape = (count, self.config.action_size)
        return rng.uniform(self.low.numpy(), self.high.numpy(), size=shape).astype(np.float32)


class BehaviourPolicy(nn.Module):
    """The recorded episodes as their own measure: what each of them collected."""

    config_type: ClassVar[type[ReferencePolicyConfig]] = ReferencePolicyConfig
    mean_return: Tensor

    def __init__(self, config: ReferencePolicyConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean_return", torch.zeros((), dtype=torch.float64))
