"""The processes of one run: one by default, many under `torchrun`. Knows nothing of what they compute."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed
from torch import Tensor

T = TypeVar("T")
PATIENCE = timedelta(hours=12)  # the others wait while the first process evaluates or rolls out episodes


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """This process among those of the run; with one of them every method is for free."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Say whether this process writes and talks for all."""
        return self.rank == 0

    def tell(self, value: T) -> T:
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
        """Go on when all processes have come here."""
        if self.size > 1:
            torch.distributed.barrier()


SOLO = World()


def process_count() -> int:
    """Return how many processes `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_rank() -> int:
    """Return the number of this process among them; 0 without `torchrun`."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def connected() -> Iterator[World]:
    """Join the other processes for the time of a block."""
    if process_count() == 1:
        yield SOLO
        return
    # Tensors of the CPU (states of random generators) travel by gloo, gradients by whatever their device has.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    torch.distributed.init_process_group(backend, timeout=PATIENCE)
    try:
        yield World(rank=torch.distributed.get_rank(), size=torch.distributed.get_world_size())
    finally:
        torch.distributed.destroy_process_group()
