"""What a stopped run needs to go on bit for bit: weights, optimiser, random numbers, status; when to save it.

Knows what training consists of; how files are kept whole is `aaren.engine.checkpoint`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.engine import checkpoint
from aaren.engine.checkpoint import Checkpoint
from aaren.engine.config import differences
from aaren.engine.determinism import random_state, restore_random_state
from aaren.engine.distributed import World
from aaren.engine.status import RunStatus
from aaren.errors import ConfigError

_FACTS = ("config", "processes", "threads", "status")
SHARE_OF_TIME = 0.02  # of a run that may go into saving
HARMLESS = ("changed", "engine.checkpoint_seconds", "engine.predictions")  # keys that may differ


@dataclass(kw_only=True, eq=False, slots=True)
class Snapshot:
    """Everything that moves while a run trains."""

    model: nn.Module
    optimiser: Optimizer | None
    status: RunStatus
    device: torch.device
    best: dict[str, Tensor] | None = None  # the weights of the best look

    def keep_best(self) -> None:
        """Remember the weights as they are now."""
        state = self.model.state_dict()
        if self.best is None:
            self.best = {name: tensor.detach().clone() for name, tensor in state.items()}
        else:
            for name, tensor in state.items():
                self.best[name].copy_(tensor)


@dataclass(kw_only=True, eq=False, slots=True)
class Keeper:
    """Saves and restores snapshots of one run."""

    folder: Path
    config: Mapping[str, object]  # the run's, as a mapping; a checkpoint of another one is refused
    every_seconds: float = 30.0
    saved_update: int = -1
    saved_at: float = field(default_factory=time.monotonic)
    save_seconds: float = 0.0

    def is_due(self) -> bool:
        """Say whether it is time: not too often, and never more than a small share of the run's time."""
        wait = max(self.every_seconds, self.save_seconds / SHARE_OF_TIME) if self.every_seconds else 0.0
        return time.monotonic() - self.saved_at >= wait

    def save(self, snapshot: Snapshot, world: World, say: Callable[[str], None]) -> None:
        """Write a checkpoint; if the disk is full the run goes on with the checkpoints there are."""
        update = snapshot.status.update
        if update == self.saved_update:
            return
        begin = time.monotonic()
        random_numbers = {
            f"{name}.{rank}": state
            for name, mine in random_state(snapshot.device).items()
            for rank, state in enumerate(world.gather(mine))
        }
        if world.is_first:
            tensors: dict[str, Mapping[str, Tensor]] = {
                "model": snapshot.model.state_dict(),
                "random": random_numbers,
            }
            facts: dict[str, object] = {
                "config": self.config,
                "processes": world.size,
                "threads": torch.get_num_threads(),
                "status": snapshot.status.to_json(),
            }
            if snapshot.best is not None:
                tensors["best"] = snapshot.best
            if snapshot.optimiser is not None:
                tensors["optimiser"], facts["optimiser"] = _take_apart(snapshot.optimiser)
            try:
                checkpoint.save(self.folder, update, Checkpoint(tensors=tensors, facts=facts))
            except OSError as error:
                say(
                    f"no checkpoint at update {update}: {error}. Training goes on; the last good one is kept."
                )
        self.saved_at, self.saved_update = time.monotonic(), update
        self.save_seconds = self.saved_at - begin

    def restore(self, snapshot: Snapshot, world: World, say: Callable[[str], None]) -> bool:
        """Bring a fresh snapshot to where the newest whole checkpoint was; False if there is none."""
        newest = checkpoint.load_newest(
            self.folder, complain=say if world.is_first else _ignore, facts=_FACTS
        )
        if newest is None:
            return False
        facts = newest.facts
        require_same_config(
            cast("Mapping[str, object]", facts["config"]), self.config, where=str(self.folder.parent)
        )
        if facts["processes"] != world.size:
            raise ConfigError(
                f"this run began with {facts['processes']} process(es) and cannot go on with {world.size}. "
                "Use the same torchrun --nproc-per-node, or another folder (--out)."
            )
        torch.set_num_threads(cast("int", facts["threads"]))
        snapshot.model.load_state_dict(newest.tensors["model"])
        if "best" in newest.tensors:
            snapshot.best = {
                name: tensor.to(snapshot.device) for name, tensor in newest.tensors["best"].items()
            }
        if snapshot.optimiser is not None:
            _put_together(snapshot.optimiser, newest.tensors["optimiser"], facts["optimiser"])
        mine = {
            key.split(".")[0]: state
            for key, state in newest.tensors["random"].items()
            if key.endswith(f".{world.rank}")
        }
        restore_random_state(mine, snapshot.device)
        snapshot.status = RunStatus.from_json(cast("Mapping[str, object]", facts["status"]))
        self.saved_update = snapshot.status.update
        return True


def require_same_config(old: Mapping[str, object], new: Mapping[str, object], *, where: str) -> None:
    """Refuse to go on with another config in the same folder, naming every key that differs."""
    found = [line for line in differences(old, new) if line.split(": ")[0] not in HARMLESS]
    if found:
        raise ConfigError(
            f"{where} holds a run of another config: {'; '.join(found)}. "
            "Use the same values, or another folder (--out)."
        )


def _ignore(_message: str) -> None:
    """Leave it to the first process to say."""


def _take_apart(optimiser: Optimizer) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Split an optimiser's state into tensors and plain values."""
    state = optimiser.state_dict()
    tensors, values = {}, {}
    for index, entry in state["state"].items():
        for name, value in entry.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value
            else:
                values[f"{index}.{name}"] = value
    return tensors, {"values": values, "groups": state["param_groups"]}


def _put_together(optimiser: Optimizer, tensors: Mapping[str, Tensor], rest: object) -> None:
    """Undo `_take_apart` into a fresh optimiser of the same parameters."""
    plain = cast("dict[str, dict[str, object]]", rest)
    state: dict[int, dict[str, object]] = {}
    for key, value in {**tensors, **plain["values"]}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    groups = [
        {name: tuple(value) if name == "betas" else value for name, value in group.items()}
        for group in cast("list[dict[str, list[float]]]", plain["groups"])
    ]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
