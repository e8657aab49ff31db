"""The one training loop: an Experiment gives batches, loss, metrics and the Plan; `fit` trains its model.

A run can be killed at any moment: what it needs to resume, bit for bit, is in the newest checkpoint.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Generic

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from aaren.engine.batches import move
from aaren.engine.checkpoint import Checkpoints, TrainingState
from aaren.engine.config import EngineConfig
from aaren.engine.determinism import choose_device, repeatable
from aaren.engine.experiment import BatchT, Experiment, Part
from aaren.engine.plan import Moment, RunStatus
from aaren.engine.progress import Observer
from aaren.errors import AarenError


class DivergedError(AarenError, ArithmeticError):
    """The loss is no longer finite."""


class PausedError(AarenError):
    """The run was asked to stop; the same command resumes it."""


@contextmanager
def pausing_on_signals() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a question that the loop asks between updates.

    A second one ends at once, and so does the first where nothing has asked yet: there is nothing to save.
    """
    received: list[int] = []
    is_asked = False

    def remember(number: int, _frame: FrameType | None) -> None:
        if received or not is_asked:
            raise KeyboardInterrupt
        received.append(number)

    def is_pause_wanted() -> bool:
        nonlocal is_asked
        is_asked = True
        return bool(received)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread may watch signals
        return
    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield is_pause_wanted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Use a model without dropout, gradients, or an effect on the random numbers of the training."""
    was_training = model.training
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        model.train(was_training)


def evaluate(
    experiment: Experiment[BatchT], model: nn.Module, part: Part, moment: Moment
) -> Mapping[str, float]:
    """Evaluate a model on one part of the data."""
    with evaluating(model):
        return experiment.evaluate(model, part, moment)


CHECK_EVERY = 10  # updates between two checks, where each waits for the device


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class FitResult:
    """The result of training: the model with its selected weights, and its learning curve."""

    model: nn.Module
    status: RunStatus
    threads: int  # that torch computed with


def fit(
    experiment: Experiment[BatchT],
    *,
    seed: int,
    engine: EngineConfig | None = None,
    checkpoints: Checkpoints | None = None,
    observer: Observer | None = None,
    name: str = "training",
    is_pause_wanted: Callable[[], bool] = lambda: False,
    stop_early: bool = False,
) -> FitResult:
    """Train a model to the end of its plan or until patience ends, and return it with its best weights.

    Args:
        experiment: What to train.
        seed: Of first weights and dropout; the order of batches is the experiment's.
        engine: How to compute.
        checkpoints: Where they go and come from; None: nowhere.
        observer: Is told of the progress.
        name: What to call the run.
        is_pause_wanted: Asked after updates; if it says yes, a checkpoint is written and PausedError raised.
        stop_early: Train no further than the newest checkpoint, and return the best weights so far.
    """
    engine, observer = engine or EngineConfig(), observer or Observer()
    with repeatable(engine, seed=seed):
        device = choose_device(engine.device)
        model = experiment.build_model().to(device)
        optimiser = experiment.build_optimiser(model) if experiment.plan.max_updates else None
        training = TrainingState(model=model, optimiser=optimiser, status=RunStatus(), device=device)
        rates = [] if optimiser is None else [float(group["lr"]) for group in optimiser.param_groups]
        if checkpoints is not None and checkpoints.restore(training, observer.say):
            training.status.resumed += 1
        if stop_early:
            _stop_early(training)
        observer.begin(name, experiment.plan, training.status)
        try:
            _Loop(experiment, training, rates, checkpoints, observer, is_pause_wanted).run()
        finally:
            observer.end()
        if training.best is not None:
            model.load_state_dict(training.best)
        return FitResult(model=model.eval(), status=training.status, threads=torch.get_num_threads())


def _stop_early(training: TrainingState) -> None:
    """End a run where its checkpoint is."""
    status = training.status
    if training.best is None:
        raise PausedError(
            f"at update {status.update} nothing has been evaluated yet: there are no best weights to test; "
            "the same command without --stop-early resumes."
        )
    if not status.is_done:
        status.is_done, status.ended_by = True, "request"


class _Loop(Generic[BatchT]):
    """What `fit` holds between updates."""

    def __init__(
        self,
        experiment: Experiment[BatchT],
        training: TrainingState,
        rates: list[float],
        checkpoints: Checkpoints | None,
        observer: Observer,
        is_pause_wanted: Callable[[], bool],
    ) -> None:
        self.experiment, self.plan, self.training = experiment, experiment.plan, training
        self.rates, self.status = rates, training.status  # the highest learning rates; schedules scale them
        self.checkpoints, self.observer, self.is_pause_wanted = checkpoints, observer, is_pause_wanted
        self.loss_total = torch.full(
            (), self.status.loss_total, dtype=torch.float64, device=training.device
        )  # on the device, so that the loop does not wait for it
        self.lap = time.perf_counter(), _cpu_seconds()

    def run(self) -> None:
        """Train to the end; a model without updates is evaluated once."""
        self.training.model.train()
        if self.training.optimiser is None and not self.status.is_done:
            self.evaluate()
        while self.training.optimiser is not None and not self.status.is_done:
            self.run_epoch(self.training.optimiser)

    def run_epoch(self, optimiser: Optimizer) -> None:
        """Train on what is left of the current epoch."""
        for batch in self.rest_of_epoch():
            self.loss_total += self.update(move(batch, self.training.device), optimiser)
            self.status.update += 1
            self.status.loss_count += 1
            is_evaluation_due = self.plan.is_evaluation_due(self.status.update)
            is_cheap = self.training.device.type == "cpu"
            if is_evaluation_due or is_cheap or self.status.update % CHECK_EVERY == 0:
                self.require_finite_loss()
                self.observer.updated(self.status, self.mean_loss)
                if is_evaluation_due:
                    self.evaluate()
                self.save_or_pause()
            if self.status.is_done:
                return

    def update(self, batch: BatchT, optimiser: Optimizer) -> Tensor:
        """Move the weights by one batch and return the loss, detached."""
        factor = self.plan.schedule(self.plan.moment(self.status.update))
        for group, rate in zip(optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        optimiser.zero_grad(set_to_none=True)
        loss = self.experiment.loss(self.training.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        if self.plan.clip_norm is not None:
            parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
            clip_grad_norm_(parameters, self.plan.clip_norm)
        optimiser.step()
        return loss.detach()

    def rest_of_epoch(self) -> Iterator[BatchT]:
        """Yield the batches of the current epoch that were not used yet."""
        epoch, used = divmod(self.status.update, self.plan.updates_per_epoch)
        for batch in islice(self.experiment.batches(epoch), used, self.plan.updates_per_epoch):
            used += 1
            yield batch
        if used < self.plan.updates_per_epoch:
            raise RuntimeError(
                f"epoch {epoch} has {used} batches, the plan says {self.plan.updates_per_epoch}."
            )

    def require_finite_loss(self) -> None:
        """Stop a run whose loss is not finite."""
        if not math.isfinite(float(self.loss_total)):
            raise DivergedError(
                f"the loss is {float(self.loss_total)} at update {self.status.update}: it has diverged. "
                "Lower the learning rate, clip gradients (clip_norm), or look for absurd values in the data."
            )

    def evaluate(self) -> None:
        """Evaluate on the validation part, keep the weights if they are the best, decide whether to stop."""
        status, moment = self.status, self.plan.moment(self.status.update)
        mean_loss = self.mean_loss()
        self.add_seconds("training")
        metrics = dict(evaluate(self.experiment, self.training.model, "validation", moment))
        self.add_seconds("evaluation")
        is_best = status.add(
            {
                "update": moment.update,
                "epoch": -(-moment.update // self.plan.updates_per_epoch),
                "loss": mean_loss,
                "learning_rate_factor": self.plan.schedule(self.plan.moment(max(0, moment.update - 1))),
                "seconds": round(status.total_seconds, 3),
                "is_best": False,
                "validation": metrics,
            },
            self.plan,
        )
        if is_best:
            self.training.keep_best()
        self.loss_total.zero_()
        self.observer.evaluated(status, status.curve[-1])

    def save_or_pause(self) -> None:
        """Write a checkpoint if one is due, and stop here if that is wanted."""
        is_pausing = self.is_pause_wanted()
        if self.checkpoints is not None and (is_pausing or self.status.is_done or self.checkpoints.is_due()):
            self.status.loss_total = float(self.loss_total)
            self.add_seconds("training")
            self.checkpoints.save(self.training, self.observer.say)
            self.add_seconds("saving")
        if is_pausing and not self.status.is_done:
            raise PausedError(f"stopped at update {self.status.update}; the same command resumes there.")

    def mean_loss(self) -> float:
        """Return the mean training loss since the last evaluation."""
        return float(self.loss_total) / max(1, self.status.loss_count)

    def add_seconds(self, account: str) -> None:
        """Add the time since the last call to one of the status's accounts."""
        before, self.lap = self.lap, (time.perf_counter(), _cpu_seconds())
        seconds = self.status.seconds
        seconds[account] += self.lap[0] - before[0]
        seconds["cpu"] += self.lap[1] - before[1]


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has waited for, all threads together."""
    return sum(os.times()[:4])
