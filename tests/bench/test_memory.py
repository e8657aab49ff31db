import os
from collections.abc import Callable

import pytest
import torch

from aaren.bench import memory
from aaren.bench.memory import MemoryExhaustedError

pytestmark = pytest.mark.skipif(not memory.can_measure(), reason="needs /proc, as on Linux")
MEGABYTE = 1 << 20


def allocate(num_megabytes: int, kept: int) -> Callable[[], object]:
    """Build a call that fills memory and returns a part of it."""
    inputs = torch.ones(20 * MEGABYTE // 4)  # must not count

    def call() -> object:
        inputs.sum()
        large = torch.ones(num_megabytes * MEGABYTE // 4)
        return large[: kept * MEGABYTE // 4].clone()

    return call


def fail() -> Callable[[], object]:
    raise ValueError("these inputs cannot be built")


def die() -> Callable[[], object]:
    os._exit(9)


def count_threads() -> Callable[[], object]:
    assert torch.get_num_threads() == 1
    return lambda: None


def test_peak_counts_what_is_freed_again_and_what_is_returned() -> None:
    peak = memory.peak_extra_bytes(allocate, 64, 16, warm_up=(1, 1))
    assert peak == pytest.approx(80 * MEGABYTE, abs=4 * MEGABYTE)


def test_earlier_work_does_not_hide_the_peak() -> None:
    peak = memory.peak_extra_bytes(allocate, 16, 0, warm_up=(64, 0))
    assert peak == pytest.approx(16 * MEGABYTE, abs=4 * MEGABYTE)


def test_without_proc_there_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STATUS", memory.Path("/nowhere/status"))
    assert memory.peak_extra_bytes(allocate, 1, 1) is None


def test_threads_reach_the_child() -> None:
    assert memory.peak_extra_bytes(count_threads) is not None


def test_an_error_in_the_child_is_told() -> None:
    with pytest.raises(RuntimeError, match="these inputs cannot be built"):
        memory.peak_extra_bytes(fail)


def test_a_killed_child_is_told_with_its_cure() -> None:
    with pytest.raises(MemoryExhaustedError, match=r"exit code 9 .* Choose smaller sizes"):
        memory.peak_extra_bytes(die)
