"""The baselines of every policy: random actions, the policy that recorded the data, and a clone.

Two of them do not learn: `RandomPolicy` draws between the bounds; `BehaviourPolicy` only knows what the
recorded episodes collected. `ClonePolicy` is the simplest that does: a plain network from observation to
action, fitted to the best third of the episodes, without a past or a wanted return.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.engine.experiment import Experiment, Part
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Moment, Plan
from aaren.errors import require_at_least, unknown_name
from aaren.rl.data import StateStatistics, Trajectories
from aaren.rl.model import ACTIONS

BEST_SHARE = 3  # one third of the episodes
CLONE_UPDATES, CLONE_PASSES, CLONE_BATCH, CLONE_RATE = 2_000, 100, 256, 1e-3


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ClonePolicyConfig:
    """Sizes of a `ClonePolicy`."""

    state_size: int
    action_size: int
    actions: str = "box"
    width: int = 64

    def __post_init__(self) -> None:
        """Report a setting that cannot be."""
        require_at_least(self, state_size=1, action_size=1, width=1)
        if self.actions not in ACTIONS:
            raise unknown_name("kind of actions", self.actions, ACTIONS)


class ClonePolicy(nn.Module):
    """Behaviour cloning by a network of two hidden layers: an observation in, an action out.

    >>> clone = ClonePolicy(ClonePolicyConfig(state_size=4, action_size=2, actions="discrete"))
    >>> clone.act(np.zeros((3, 4))).shape
    (3,)
    """

    config_type: ClassVar[type[ClonePolicyConfig]] = ClonePolicyConfig
    state_mean: Tensor
    state_std: Tensor
    action_low: Tensor
    action_high: Tensor

    def __init__(self, config: ClonePolicyConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(
            nn.Linear(config.state_size, config.width),
            nn.ReLU(),
            nn.Linear(config.width, config.width),
            nn.ReLU(),
            nn.Linear(config.width, config.action_size),
        )
        bounds = 0 if config.actions == "discrete" else config.action_size
        self.register_buffer("state_mean", torch.zeros(config.state_size, dtype=torch.float64))
        self.register_buffer("state_std", torch.ones(config.state_size, dtype=torch.float64))
        self.register_buffer("action_low", -torch.ones(bounds, dtype=torch.float64))
        self.register_buffer("action_high", torch.ones(bounds, dtype=torch.float64))

    def forward(self, observations: Tensor) -> Tensor:
        """Return actions in [-1, 1], or logits of discrete ones, for normalised observations."""
        outputs: Tensor = self.layers(observations)
        return outputs if self.config.actions == "discrete" else outputs.tanh()

    @torch.no_grad()
    def act(self, observations: NDArray[np.floating]) -> NDArray[np.float32] | NDArray[np.int64]:
        """Choose actions for raw observations, (n, state size) or (state size,)."""
        seen = torch.as_tensor(np.asarray(observations, dtype=np.float64))
        outputs = self.forward(((seen - self.state_mean) / self.state_std).float())
        if self.config.actions == "discrete":
            return outputs.argmax(-1).numpy()
        middle, half = (self.action_high + self.action_low) / 2, (self.action_high - self.action_low) / 2
        return (outputs.double() * half + middle).float().numpy()


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class CloneBatch:
    """Observations, normalised, and the actions that were taken there, as the clone gives them."""

    observations: Tensor  # (b, state size)
    actions: Tensor  # (b, action size), or (b,) of discrete ones

    def __len__(self) -> int:
        return len(self.observations)


class CloneExperiment(Experiment[CloneBatch]):
    """The training of a clone on the best third of the episodes: a number of updates, the last weights."""

    def __init__(
        self,
        data: Trajectories,
        *,
        statistics: StateStatistics,
        num_actions: int | None,
        bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
        seed: int,
    ) -> None:
        best = np.argsort(-data.returns, kind="stable")[: max(1, len(data) // BEST_SHARE)]
        rows = np.concatenate([np.arange(data.offsets[one], data.offsets[one + 1]) for one in best])
        self.config = ClonePolicyConfig(
            state_size=data.state_size,
            action_size=data.action_size if num_actions is None else num_actions,
            actions="box" if num_actions is None else "discrete",
        )
        self.statistics, self.bounds, self.seed = statistics, bounds, seed
        self.observations = torch.from_numpy(statistics.normalise(data.observations[rows]))
        self.actions = torch.from_numpy(data.actions[rows])
        if num_actions is None:
            low, high = map(torch.from_numpy, bounds)
            half = (high - low) / 2
            self.actions = ((self.actions.double() - low - half) / half).float()
        updates = min(CLONE_UPDATES, max(CLONE_PASSES, CLONE_PASSES * len(rows) // CLONE_BATCH))
        self.plan = Plan(updates_per_epoch=updates, max_updates=updates, evaluate_every=updates)

    def build_model(self) -> nn.Module:
        """Build the clone and give it the scales of the data."""
        clone = ClonePolicy(self.config)
        clone.state_mean.copy_(torch.from_numpy(self.statistics.mean))
        clone.state_std.copy_(torch.from_numpy(self.statistics.std))
        clone.action_low.copy_(torch.from_numpy(self.bounds[0]))
        clone.action_high.copy_(torch.from_numpy(self.bounds[1]))
        return clone

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build Adam over all parameters."""
        return OptimiserConfig(learning_rate=CLONE_RATE).build(model)

    def batches(self, epoch: int) -> Iterator[CloneBatch]:
        """Draw steps with replacement; all updates are one epoch."""
        del epoch
        rng = np.random.default_rng((self.seed, len(self.observations)))
        for _ in range(self.plan.max_updates):
            chosen = torch.from_numpy(rng.integers(len(self.observations), size=CLONE_BATCH))
            yield CloneBatch(observations=self.observations[chosen], actions=self.actions[chosen])

    def loss(self, model: nn.Module, batch: CloneBatch) -> Tensor:
        """Return the squared error, or the cross-entropy of discrete actions."""
        error = F.cross_entropy if self.config.actions == "discrete" else F.mse_loss
        return error(model(batch.observations), batch.actions)

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Return nothing: no part is held out."""
        del model, part, moment
        return {}
