import gc

import pytest
import torch

from aaren.ops import scan_attention
from aaren.ops.cpu import memory
from aaren.ops.cpu.memory import KEPT_AT_MOST, LARGE, uninitialised


@pytest.fixture(autouse=True)
def recycling():
    """Switch off the filling of empty memory, which switches recycling off, and start without kept blocks."""
    torch.use_deterministic_algorithms(False)
    memory._kept.clear()
    yield
    memory._kept.clear()


def test_memory_is_used_again_after_its_tensor_died():
    first = uninitialised(torch.empty((LARGE // 4, 2), dtype=torch.float32))
    address = first.data_ptr()
    view = first[10:]
    del first
    gc.collect()
    other = uninitialised(torch.empty((LARGE // 4, 2), dtype=torch.float32))
    assert other.data_ptr() != address  # a view is still alive
    del view
    gc.collect()
    assert uninitialised(torch.empty((LARGE // 8, 2), dtype=torch.float64)).data_ptr() == address


def test_tensors_that_live_never_share_memory():
    tensors = [uninitialised(torch.empty((LARGE // 4,), dtype=torch.float32)).fill_(k) for k in range(5)]
    assert [tensor.unique().tolist() for tensor in tensors] == [[k] for k in range(5)]


def test_large_memory_begins_on_a_cache_line():
    """Otherwise rows lie across cache lines, and the kernel cannot write past the caches."""
    assert uninitialised(torch.empty((LARGE // 4 + 7,), dtype=torch.float32)).data_ptr() % 64 == 0


def test_only_so_much_is_kept():
    tensors = [
        uninitialised(torch.empty((KEPT_AT_MOST // 16,), dtype=torch.float32)) for _ in range(6)
    ]  # 64 MB each
    del tensors
    gc.collect()
    assert KEPT_AT_MOST // 2 < sum(map(len, memory._kept)) <= KEPT_AT_MOST
    huge = uninitialised(torch.empty((KEPT_AT_MOST // 4 + 1,), dtype=torch.float32))
    del huge
    gc.collect()
    assert sum(map(len, memory._kept)) <= KEPT_AT_MOST


class LastOfItsKind(bytes):
    """A block during whose comparison a tensor dies, as the garbage collector may have it."""

    is_fresh = True

    def __len__(self) -> int:
        if self.is_fresh:
            self.is_fresh = False
            memory._give_back(bytes(KEPT_AT_MOST - 3))  # drops the oldest
        return super().__len__()


def test_a_finalizer_may_run_while_a_block_is_looked_for():
    memory._kept.extend([b"12", LastOfItsKind(b"345")])
    block = memory._take(3)
    assert len(block) == 3
    assert block not in memory._kept


def test_small_memory_is_the_c_librarys():
    small = uninitialised(torch.empty((10, 3), dtype=torch.float64))
    assert small.shape == (10, 3)
    del small
    gc.collect()
    assert not memory._kept


def test_results_survive_many_rounds(rng):
    scores = torch.randn(8, 1024, 8, generator=rng)
    values = torch.randn(8, 1024, 8, 64, generator=rng)
    first, _ = scan_attention(scores, values)
    kept = first.clone()
    for _ in range(4):
        scan_attention(scores + 1, values * 2)
    assert torch.equal(first, kept)
    assert torch.equal(scan_attention(scores, values)[0], kept)
