"""What makes a run repeatable: a seed, a number of threads, deterministic algorithms; and where it computes.

These are settings of the whole process and are restored afterwards.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol, cast

import torch
import torch.utils.deterministic

from aaren.engine.config import EngineConfig
from aaren.errors import ConfigError

CUDA_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # without it cuBLAS may sum in another order


class _Filling(Protocol):
    fill_uninitialized_memory: bool


@contextmanager
def repeatable(engine: EngineConfig, *, seed: int) -> Iterator[None]:
    """Seed torch and make it deterministic inside a block; put its generators back afterwards."""
    devices = list(range(torch.cuda.device_count())) if engine.device != "cpu" else []
    with ExitStack() as stack:
        stack.enter_context(_threads(engine.threads))
        if engine.deterministic:
            if devices:
                os.environ.setdefault(CUDA_WORKSPACE, ":4096:8")
            stack.enter_context(_deterministic_algorithms())
        stack.enter_context(torch.random.fork_rng(devices=devices))
        torch.manual_seed(seed)
        yield


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if count and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:  # which a checkpoint may have changed as well
            torch.set_num_threads(before)


@contextmanager
def _deterministic_algorithms() -> Iterator[None]:
    # torch sets this one through a class of the module, which type checkers do not see.
    filling = cast("_Filling", torch.utils.deterministic)
    mode, is_filling = torch.get_deterministic_debug_mode(), filling.fill_uninitialized_memory
    # As torch.use_deterministic_algorithms, which also imports the compiler: two seconds.
    torch.set_deterministic_debug_mode("error")
    filling.fill_uninitialized_memory = False  # a debugging aid that costs time
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        filling.fill_uninitialized_memory = is_filling


def choose_device(name: str) -> torch.device:
    """Return the device of a run."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device = 'cuda', but torch sees no CUDA device here: use 'cpu' or 'auto'.")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda")
