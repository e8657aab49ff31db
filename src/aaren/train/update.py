"""One update: forward, backward and optimiser over the parts of a batch. Knows no setting and no checkpoint.

However a batch is cut, into parts for memory or among processes, the gradient is that of the whole batch.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Generic

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from aaren.tasks.base import BatchT, Experiment
from aaren.tasks.plan import Moment
from aaren.train.config import EngineConfig
from aaren.train.distributed import World
from aaren.train.endings import PausedError
from aaren.train.shares import move, share


class Objective(nn.Module, Generic[BatchT]):
    """What is minimised, as a module, so that compiling and sharing gradients see any model's loss."""

    def __init__(self, experiment: Experiment[BatchT], model: nn.Module) -> None:
        super().__init__()
        self.experiment = experiment
        self.model = model

    def forward(self, batch: BatchT, factor: float, has_penalty: bool) -> Tensor:
        """Return the loss times a factor, and the penalty if wanted."""
        loss = self.experiment.loss(self.model, batch)
        if factor != 1.0:
            loss = loss * factor
        penalty = self.experiment.penalty(self.model) if has_penalty else None
        return loss if penalty is None else loss + penalty


class Update(Generic[BatchT]):
    """Move the weights by one batch, and know how long the arithmetic took."""

    def __init__(
        self,
        experiment: Experiment[BatchT],
        model: nn.Module,
        optimiser: Optimizer,
        *,
        engine: EngineConfig,
        world: World,
        device: torch.device,
        is_pause_wanted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.experiment, self.optimiser, self.is_pause_wanted = experiment, optimiser, is_pause_wanted
        self.engine, self.world, self.device = engine, world, device
        self.inside_seconds = 0.0
        self.rates = [
            float(group["lr"]) for group in optimiser.param_groups
        ]  # the highest; schedules scale them
        self.parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        self.objective: nn.Module = Objective(experiment, model)
        if engine.compile:
            self.objective.compile()
        if world.size > 1:
            self.objective = DistributedDataParallel(
                self.objective, find_unused_parameters=not experiment.uses_all_parameters
            )

    def __call__(self, batch: BatchT, moment: Moment) -> Tensor:
        """Make one update and return the loss, detached: this process's share of it."""
        factor = self.experiment.plan.schedule(moment)
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        parts = self._parts(batch)
        begin = time.perf_counter()
        self.optimiser.zero_grad(set_to_none=True)
        total: Tensor | None = None
        for number, (part, weight) in enumerate(parts):
            # Many processes would have to agree first: they stop between updates only.
            if number and self.world.size == 1 and self.is_pause_wanted():
                raise PausedError(
                    f"stopped within the update after {moment.update}, part {number} of {len(parts)}; "
                    "the same command goes on from the last checkpoint."
                )
            with self._syncing(number == len(parts) - 1):
                with self._casting():
                    loss = self.objective(part, weight, number == 0)
                loss.backward()
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None  # there is at least one part
        clip_norm = self.experiment.plan.clip_norm
        if clip_norm is not None:
            clip_grad_norm_(self.parameters, clip_norm)
        self.optimiser.step()
        self.inside_seconds += time.perf_counter() - begin
        return total

    def take_inside_seconds(self) -> float:
        """Return the time spent in forward, backward and optimiser since this was asked last."""
        seconds, self.inside_seconds = self.inside_seconds, 0.0
        return seconds

    def _parts(self, batch: BatchT) -> list[tuple[BatchT, float]]:
        """Cut out what this process computes, with the factor of each part's loss."""
        accumulate = min(self.engine.accumulate, max(1, len(batch)))  # more parts than cases would be empty
        count = accumulate * self.world.size
        if count == 1:
            return [(move(batch, self.device), 1.0)]
        whole = self.experiment.weight(batch)
        parts = []
        for number in range(accumulate):
            part = share(batch, self.world.rank * accumulate + number, count)
            if part is not None:
                # Gradients are averaged over processes, but the parts' losses are to be summed.
                factor = self.world.size * self.experiment.weight(part) / whole
                parts.append((move(part, self.device), factor))
        if not parts:  # fewer cases than processes: take part in the exchange, count for nothing
            first = share(batch, 0, len(batch)) or batch
            parts.append((move(first, self.device), 0.0))
        return parts

    def _syncing(self, is_last: bool) -> contextlib.AbstractContextManager[object]:
        if isinstance(self.objective, DistributedDataParallel) and not is_last:
            return self.objective.no_sync()
        return contextlib.nullcontext()

    def _casting(self) -> contextlib.AbstractContextManager[object]:
        if self.engine.autocast == "none":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)
