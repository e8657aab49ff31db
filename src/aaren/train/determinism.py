"""What makes a run repeatable: a seed, a number of threads, deterministic algorithms; and where it computes.

All of them are switches of the whole process; they are put back afterwards.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, cast

import torch
import torch.utils.deterministic
from torch import Tensor

from aaren.errors import ConfigError
from aaren.train.config import EngineConfig
from aaren.train.distributed import World

CUDA_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # without it cuBLAS may sum in another order


class _Filling(Protocol):
    fill_uninitialized_memory: bool


@contextmanager
def repeatable(engine: EngineConfig, *, seed: int) -> Iterator[None]:
    """Seed torch and make it deterministic for the time of a block."""
    threads, was_deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
    # torch sets this one through a class of the module, which type checkers do not see.
    filling = cast("_Filling", torch.utils.deterministic)
    was_filling = filling.fill_uninitialized_memory
    devices = list(range(torch.cuda.device_count())) if engine.device != "cpu" else []
    try:
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            if engine.threads:
                torch.set_num_threads(engine.threads)
            if engine.deterministic:
                os.environ.setdefault(CUDA_WORKSPACE, ":4096:8")
                torch.use_deterministic_algorithms(True)
                filling.fill_uninitialized_memory = False  # a debugging aid that costs time
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_deterministic, warn_only=warns_only)
        filling.fill_uninitialized_memory = was_filling


def part_ways(seed: int, world: World) -> None:
    """Give every process but the first its own random numbers, once their equal first weights are drawn."""
    if world.rank:
        torch.manual_seed((seed * 1_000_003 + world.rank) % 2**63)


def choose_device(name: str) -> torch.device:
    """Find the device of this process."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device = 'cuda', but torch sees no CUDA device here: use 'cpu' or 'auto'.")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the state of the random generators that a run draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_state(states: dict[str, Tensor], device: torch.device) -> None:
    """Set the generators back to what `random_state` returned."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
