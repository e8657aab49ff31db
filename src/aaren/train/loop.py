"""The one training loop. Knows nothing of settings: an Experiment gives batches, loss, metrics and the Plan.

A run can be killed at any moment: what it needs to go on, bit for bit, is in the newest checkpoint.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic

import torch
from torch import nn

from aaren.tasks.base import BatchT, Experiment
from aaren.train.config import EngineConfig
from aaren.train.determinism import build, choose_device, part_ways, repeatable
from aaren.train.distributed import SOLO, World
from aaren.train.endings import DivergedError, PausedError
from aaren.train.evaluate import evaluate
from aaren.train.observe import Observer, Silent
from aaren.train.resume import Keeper, Snapshot
from aaren.train.status import RunStatus
from aaren.train.update import Update

HOUSEKEEPING = 10  # updates between two looks around where each costs an exchange or a wait for the device


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Fitted:
    """What training leaves: the model with its selected weights, and how it came there."""

    model: nn.Module
    status: RunStatus
    threads: int  # that torch computed with


def fit(
    experiment: Experiment[BatchT],
    *,
    seed: int,
    engine: EngineConfig | None = None,
    keeper: Keeper | None = None,
    observer: Observer | None = None,
    world: World = SOLO,
    name: str = "training",
    is_pause_wanted: Callable[[], bool] = lambda: False,
    is_cut_short: bool = False,
    is_guest: bool = False,
) -> Fitted:
    """Train a model until its plan is fulfilled or patience ends, and return it with its best weights.

    Args:
        experiment: What to train.
        seed: Of first weights and dropout; the order of batches is the experiment's.
        engine: How to compute.
        keeper: Where checkpoints go and come from; None: nowhere.
        observer: Who is told.
        world: This process among those of the run.
        name: What to call the run.
        is_pause_wanted: Asked after updates; if it says yes, a checkpoint is written and PausedError raised.
            Also asked between the parts of one update, which is then left undone, without a checkpoint.
        is_cut_short: Train no further than the checkpoint, and return the best weights so far.
        is_guest: Train in a process that others use too: see `repeatable`.
    """
    engine, observer = engine or EngineConfig(), observer or Silent()
    with repeatable(engine, seed=seed, is_guest=is_guest):
        device = choose_device(engine.device)
        model = build(experiment.build_model).to(device)
        part_ways(seed, world)
        optimiser = experiment.build_optimiser(model) if experiment.plan.max_updates else None
        snapshot = Snapshot(model=model, optimiser=optimiser, status=RunStatus(), device=device)
        update = None
        if optimiser is not None:
            update = Update(
                experiment,
                model,
                optimiser,
                engine=engine,
                world=world,
                device=device,
                is_pause_wanted=is_pause_wanted,
            )
        if keeper is not None and keeper.restore(snapshot, world, observer.say):
            snapshot.status.resumed += 1
        if is_cut_short:
            _cut_short(snapshot)
        loop = _Loop(experiment, snapshot, update, keeper, observer, world, is_pause_wanted)
        observer.begin(name, experiment.plan, snapshot.status)
        try:
            loop.run()
        finally:
            observer.end()
        if snapshot.best is not None:
            model.load_state_dict(snapshot.best)
        return Fitted(model=model.eval(), status=snapshot.status, threads=torch.get_num_threads())


def _cut_short(snapshot: Snapshot) -> None:
    """End a run where its checkpoint is."""
    status = snapshot.status
    if snapshot.best is None:
        raise PausedError(
            f"at update {status.update} nothing has been scored yet, so there is nothing to finish with; "
            "the same command without --finish goes on."
        )
    if not status.is_done:
        status.is_done, status.ended_by = True, "request"


class _Loop(Generic[BatchT]):
    """What `fit` holds between updates."""

    def __init__(
        self,
        experiment: Experiment[BatchT],
        snapshot: Snapshot,
        update: Update[BatchT] | None,
        keeper: Keeper | None,
        observer: Observer,
        world: World,
        is_pause_wanted: Callable[[], bool],
    ) -> None:
        self.experiment, self.plan, self.snapshot, self.update = experiment, experiment.plan, snapshot, update
        self.status, self.keeper, self.observer, self.world = snapshot.status, keeper, observer, world
        self.is_pause_wanted = is_pause_wanted
        self.is_cheap = world.size == 1 and snapshot.device.type == "cpu"
        self.loss_total = torch.full(
            (), self.status.loss_total, dtype=torch.float64, device=snapshot.device
        )  # on the device, so that nobody waits for it
        self.clock = time.perf_counter()

    def run(self) -> None:
        """Train to the end."""
        self.snapshot.model.train()
        if self.update is None and not self.status.is_done:
            self.look()
        while self.update is not None and not self.status.is_done:
            self.run_epoch(self.update)

    def run_epoch(self, update: Update[BatchT]) -> None:
        """Train on what is left of the current epoch."""
        for batch in self.rest_of_epoch():
            self.loss_total += update(batch, self.plan.moment(self.status.update))
            self.status.update += 1
            self.status.loss_count += 1
            is_look_due = self.plan.is_look_due(self.status.update)
            if is_look_due or self.is_cheap or self.status.update % HOUSEKEEPING == 0:
                self.require_finite_loss()
                self.observer.updated(self.status, self.mean_loss)
                if is_look_due:
                    self.look()
                self.save_or_pause()
            if self.status.is_done:
                return

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
        """Stop a run whose numbers have become absurd."""
        if not math.isfinite(float(self.loss_total)):
            raise DivergedError(
                f"the loss is {float(self.loss_total)} at update {self.status.update}: it has diverged. "
                "Lower the learning rate, clip gradients (clip_norm), or look for absurd values in the data."
            )

    def look(self) -> None:
        """Score the validation part, keep the weights if they are the best, decide whether to stop."""
        status, moment = self.status, self.plan.moment(self.status.update)
        mean_loss = self.world.mean(self.mean_loss())
        self.book("training")
        first, model = self.world.is_first, self.snapshot.model
        metrics = self.world.tell(
            dict(evaluate(self.experiment, model, "validation", moment)) if first else {}
        )
        self.book("looking")
        is_best = status.take(
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
            self.snapshot.keep_best()
        self.loss_total.zero_()
        self.observer.looked(status, status.curve[-1])

    def save_or_pause(self) -> None:
        """Write a checkpoint if one is due, and stop here if that is wanted."""
        is_due = self.keeper is not None and self.keeper.is_due()
        is_pausing, is_due = self.world.tell((self.is_pause_wanted(), is_due))
        if self.keeper is not None and (is_pausing or is_due or self.status.is_done):
            self.status.loss_total = float(self.loss_total)
            self.book("training")
            self.keeper.save(self.snapshot, self.world, self.observer.say)
            self.book("saving")
        if is_pausing and not self.status.is_done:
            raise PausedError(f"stopped at update {self.status.update}; the same command goes on from there.")

    def mean_loss(self) -> float:
        """Return the mean training loss since the last look."""
        return float(self.loss_total) / max(1, self.status.loss_count)

    def book(self, what: str) -> None:
        """Add the time since the last booking to one of the status's accounts."""
        now = time.perf_counter()
        self.status.seconds[what] += now - self.clock
        self.clock = now
        if what == "training" and self.update is not None:
            self.status.seconds["inside_updates"] += self.update.take_inside_seconds()
