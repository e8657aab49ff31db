"""How policies are trained: to repeat the actions in windows of recorded steps."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.engine.experiment import Experiment, Part
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Criterion, Moment, Plan
from aaren.rl.batches import TrajectoryBatch, TrajectoryBatches
from aaren.rl.data import StateStatistics, Trajectories
from aaren.rl.model import DecisionModel, DecisionModelConfig, Steps

WARM_UP, CLIP_NORM = 20, 1.0
SCORED_AT_ONCE = 256  # windows
EVALUATIONS = 20  # on held-out episodes, evenly spread over the updates


class ReturnLadder(NamedTuple):
    """Where a return stands among the recorded ones.

    >>> ladder = ReturnLadder(np.array([10.0, 20.0, 20.0, 30.0]))
    >>> ladder.place(np.array([-5.0, 10.0, 15.0, 20.0, 99.0])).tolist()
    [-0.75, -0.75, -0.5, 0.0, 0.75]
    """

    returns: NDArray[np.float64]  # sorted

    def place(self, wanted: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return -1 (lowest) to 1 (highest), equal ones in their middle; what is beyond is at the ends."""
        asked = np.clip(wanted, self.returns[0], self.returns[-1])
        below = np.searchsorted(self.returns, asked, side="left")
        up_to = np.searchsorted(self.returns, asked, side="right")
        return np.asarray((below + up_to) / len(self.returns) - 1.0)


class PolicyExperiment(Experiment[TrajectoryBatch]):
    """Training on windows of recorded steps; experiments differ in how they draw them and judge."""

    training: TrajectoryBatches
    optimiser: OptimiserConfig

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build AdamW over all parameters."""
        return self.optimiser.build(model)

    def batches(self, epoch: int) -> Iterator[TrajectoryBatch]:
        """Draw the windows of an epoch, in random order."""
        return self.training.epoch(epoch)

    def loss(self, model: nn.Module, batch: TrajectoryBatch) -> Tensor:
        """Return the squared error of actions, or the cross-entropy of discrete ones, over real steps."""
        assert isinstance(model, DecisionModel)
        steps = Steps(batch.returns_to_go, batch.observations, model.to_unit(batch.actions), batch.timesteps)
        return model.loss(steps, mask=None if bool(batch.mask.all()) else batch.mask)


class WindowExperiment(PolicyExperiment):
    """Windows of up to K steps with nothing before them: what a session sees after a reset."""

    def __init__(
        self,
        data: Trajectories,
        held_out: Trajectories | None,
        *,
        network: DecisionModelConfig,
        ladder: ReturnLadder,
        bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
        optimiser: OptimiserConfig,
        updates: int,
        batch_size: int,
        patience: int,
        seed: int,
    ) -> None:
        self.network, self.ladder, self.bounds, self.optimiser = network, ladder, bounds, optimiser
        self.training = self._windows(data, batch_size, seed)
        self.held_out: TrajectoryBatches | None = None
        if held_out is not None:
            self.held_out = self._windows(held_out, batch_size, seed, self.training.statistics)
        self.plan = Plan(
            updates_per_epoch=len(self.training),
            max_updates=updates,
            evaluate_every=max(1, updates // EVALUATIONS),
            selects=None if held_out is None else Criterion(metric="loss"),
            patience=patience if held_out is not None else None,
            schedule=lambda moment: min(1.0, (moment.update + 1) / WARM_UP) * (1.0 - moment.update / updates),
            clip_norm=CLIP_NORM,
        )

    def _windows(
        self, data: Trajectories, batch_size: int, seed: int, statistics: StateStatistics | None = None
    ) -> TrajectoryBatches:
        return TrajectoryBatches(
            data,
            context_steps=self.network.context_steps,
            batch_size=batch_size,
            sampling="length",
            return_scale=self.network.return_scale,
            wanted=np.repeat(self.ladder.place(data.returns), data.lengths),
            statistics=statistics,
            seed=seed,
        )

    def build_model(self) -> nn.Module:
        """Build the model and give it the scales of the data."""
        model = DecisionModel(self.network)
        statistics = self.training.statistics
        model.set_scales(
            state_mean=torch.from_numpy(statistics.mean),
            state_std=torch.from_numpy(statistics.std),
            action_low=torch.from_numpy(self.bounds[0]),
            action_high=torch.from_numpy(self.bounds[1]),
        )
        return model

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Score the actions of held-out episodes, given what a session would have carried to them."""
        del part, moment
        if self.held_out is None:
            return {}
        held, steps = self.held_out, self.network.context_steps
        device = next(model.parameters()).device
        counts = -(-held.trajectories.lengths // steps)  # a session is reset every K steps
        chosen = np.repeat(np.arange(len(counts)), counts)
        starts = np.concatenate([steps * np.arange(count) for count in counts])
        total = weight = 0.0
        for begin in range(0, len(chosen), SCORED_AT_ONCE):
            some = slice(begin, begin + SCORED_AT_ONCE)
            batch = held.gather(chosen[some], starts[some]).to(device)
            num_steps = float(batch.mask.sum())
            total += num_steps * float(self.loss(model, batch))
            weight += num_steps
        return {"loss": total / weight}
