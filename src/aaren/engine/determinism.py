"""What makes a run repeatable: a seed, a number of threads, deterministic algorithms; and where it computes.

Most of these are settings of the whole process and are restored afterwards. Blocks of several threads do not
interfere.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Protocol, cast

import torch
import torch.utils.deterministic
from torch import nn

from aaren.engine.config import EngineConfig
from aaren.engine.distributed import World, device_number
from aaren.errors import ConfigError
from aaren.nn.generators import building_from, drawing_from, own_generator

CUDA_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # without it cuBLAS may sum in another order

_seeding = threading.RLock()  # held while torch's own generators are seeded
_switching = threading.Lock()  # held for the moments in which switches are read and set
_switches: dict[str, int] = {}  # as they were before the first deterministic block, and how many there are


class _Filling(Protocol):
    fill_uninitialized_memory: bool


@contextmanager
def repeatable(engine: EngineConfig, *, seed: int, shares_process: bool = False) -> Iterator[None]:
    """Seed torch and make it deterministic for the time of a block.

    Args:
        engine: How to compute.
        seed: Of the random numbers.
        shares_process: Other threads of the process compute meanwhile. On a CPU the block then draws from a
            generator of its own, and blocks of several threads may run side by side. Otherwise torch's
            generators are seeded and put back, one block after the other.
    """
    devices = list(range(torch.cuda.device_count())) if engine.device != "cpu" else []
    with ExitStack() as stack:
        stack.enter_context(_threads(engine.threads, shares_process=shares_process))
        if engine.deterministic:
            if devices:
                os.environ.setdefault(CUDA_WORKSPACE, ":4096:8")
            stack.enter_context(_deterministic_algorithms())
            if engine.compile:
                from torch._inductor import config as compiler

                stack.enter_context(compiler.patch(deterministic=True))
        if shares_process and not devices:
            stack.enter_context(drawing_from(torch.Generator().manual_seed(seed)))
        else:
            stack.enter_context(_seeding)
            stack.enter_context(torch.random.fork_rng(devices=devices))
            torch.manual_seed(seed)
        yield


def build_seeded(model: Callable[[], nn.Module]) -> nn.Module:
    """Build a model whose first weights come from the random numbers of the block around."""
    own = own_generator()
    if own is None:
        return model()
    with building_from(own):
        return model()


@contextmanager
def untouched_random_numbers(devices: list[torch.device]) -> Iterator[None]:
    """Put the random numbers of the block around back to where they were."""
    own = own_generator()
    if own is None:
        with torch.random.fork_rng(devices=devices):
            yield
        return
    state = own.get_state()
    try:
        yield
    finally:
        own.set_state(state)


def take_threads() -> None:
    """Take over torch's number of threads, which a thread does anyway when it first computes something.

    But not in the moment in which a block that shares its process sets its own.
    """
    with _switching:
        torch.get_num_threads()


@contextmanager
def _threads(count: int, *, shares_process: bool) -> Iterator[None]:
    change = _set_own_threads if shares_process else torch.set_num_threads
    with _switching:
        before = torch.get_num_threads()
        if count and count != before:
            change(count)
    try:
        yield
    finally:
        with _switching:
            if torch.get_num_threads() != before:  # which a checkpoint may have changed as well
                change(before)


def _set_own_threads(count: int) -> None:
    """Set the number of this thread alone; torch's switch is also for all that have not computed yet."""
    with ThreadPoolExecutor(1) as fresh:
        of_others = fresh.submit(torch.get_num_threads).result()
        torch.set_num_threads(count)
        fresh.submit(torch.set_num_threads, of_others).result()


@contextmanager
def _deterministic_algorithms() -> Iterator[None]:
    """Switch them on with the first of several blocks, and back with the last."""
    # torch sets this one through a class of the module, which type checkers do not see.
    filling = cast("_Filling", torch.utils.deterministic)
    with _switching:
        if not _switches:
            _switches.update(
                mode=torch.get_deterministic_debug_mode(),
                filling=filling.fill_uninitialized_memory,
                blocks=0,
            )
            # As torch.use_deterministic_algorithms, which also imports the compiler: two seconds.
            torch.set_deterministic_debug_mode("error")
            filling.fill_uninitialized_memory = False  # a debugging aid that costs time
        _switches["blocks"] += 1
    try:
        yield
    finally:
        with _switching:
            _switches["blocks"] -= 1
            if not _switches["blocks"]:
                torch.set_deterministic_debug_mode(_switches["mode"])
                filling.fill_uninitialized_memory = bool(_switches["filling"])
                _switches.clear()


def seed_rank(seed: int, world: World) -> None:
    """Give every process but the first its own random numbers, once their equal first weights are drawn."""
    if world.rank:
        torch.manual_seed((seed * 1_000_003 + world.rank) % 2**63)


def choose_device(name: str) -> torch.device:
    """Find the device of this process."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device = 'cuda', but torch sees no CUDA device here: use 'cpu' or 'auto'.")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", device_number())
