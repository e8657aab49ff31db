"""The processes of one run: one by default, many under `torchrun`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed
from torch import Tensor

from aaren.errors import ConfigError

T = TypeVar("T")
PATIENCE = timedelta(hours=12)  # the others wait while the first process evaluates or rolls out episodes


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """This process among those of the run; with a single process every method costs nothing."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Say whether this process writes files and messages for all."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return the first process's value in every process."""
        if self.size == 1:
            return value
        box: list[object] = [value]
        torch.distributed.broadcast_object_list(box, src=0)
        return cast("T", box[0])

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return this tensor of every process, in the order of their ranks."""
        if self.size == 1:
            return [tensor]
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        torch.distributed.all_gather(found, tensor)
        return found

    def mean(self, value: float) -> float:
        """Average a number over the processes."""
        tensor = torch.tensor([value], dtype=torch.float64)
        return float(torch.stack(self.gather(tensor)).mean())

    def wait(self) -> None:
        """Wait until all processes reach this call."""
        if self.size > 1:
            torch.distributed.barrier()


SINGLE = World()


def process_count() -> int:
    """Return how many processes `torchrun` started; 1 without it."""
    return _count("WORLD_SIZE", "1", least=1)


def process_rank() -> int:
    """Return the number of this process among them; 0 without `torchrun`."""
    rank, size = _count("RANK", "0", least=0), process_count()
    if rank >= size:
        raise ConfigError(f"RANK={rank} must be below WORLD_SIZE={size}: start with torchrun, or unset both.")
    return rank


def device_number() -> int:
    """Return the number of this process's device on its machine; 0 without `torchrun`."""
    return _count("LOCAL_RANK", "0", least=0)


def _count(variable: str, default: str, *, least: int) -> int:
    text = os.environ.get(variable, default)
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least:
        return int(text)
    raise ConfigError(
        f"the environment variable {variable} must be a number from {least} on, as torchrun sets it; "
        f"got {text!r}. Unset it, or start with torchrun."
    )


@contextmanager
def connected() -> Iterator[World]:
    """Join the other processes for the time of a block."""
    if process_count() == 1:
        yield SINGLE
        return
    # Tensors of the CPU (states of random generators) travel by gloo, gradients by whatever their device has.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        torch.distributed.init_process_group(backend, timeout=PATIENCE)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"the {process_count()} processes that WORLD_SIZE asks for cannot meet: {error}. "
            "Start with torchrun, or unset WORLD_SIZE."
        ) from error
    try:
        yield World(rank=torch.distributed.get_rank(), size=torch.distributed.get_world_size())
    finally:
        torch.distributed.destroy_process_group()
