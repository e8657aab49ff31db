import os
import subprocess
import sys
import threading

import pytest
import torch

from aaren.ops import ScanState, scan_attention
from aaren.ops.cpu import fused, threads
from aaren.ops.state import Items


def count_items(state: ScanState, *, times: int) -> None:
    """Scan 10 items of equal score, again and again: each scan adds 10 to every u."""
    scores, values = torch.zeros(50, 10, 4), torch.ones(50, 10, 4, 1)
    outputs, gates, forgets = torch.empty_like(values), scores.double(), scores.double()
    for _ in range(times):
        fused.forward(Items(scores, values), state, (outputs, *state, gates, forgets, None))


@pytest.fixture
def threads_for_everything(monkeypatch):
    monkeypatch.setattr(fused, "SMALL_WORK", 0)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("is_forked", [False, True])
def test_every_piece_is_taken_once(num_threads, is_forked, monkeypatch, threads_for_everything):
    monkeypatch.setattr(threads, "_is_forked", is_forked)  # threads of our own instead of torch's
    threads_for_everything(num_threads)
    state = ScanState.empty((50, 4), 1)
    count_items(state, times=20)
    assert (state.u == 200).all()


@pytest.mark.parametrize("shape", [(0, 3, 2, 4), (3, 0, 2, 4), (3, 3, 0, 4), (3, 3, 2, 0)])
def test_nothing_is_no_work(shape, threads_for_everything):
    threads_for_everything(2)
    scores, values = torch.zeros(shape[:3], requires_grad=True), torch.ones(shape, requires_grad=True)
    outputs, state = scan_attention(scores, values)
    (outputs.sum() + state.u.sum()).backward()
    assert outputs.shape == shape
    assert (state.u == shape[1]).all()
    assert scores.grad is not None


def test_callers_in_several_threads_do_not_disturb_each_other(threads_for_everything):
    threads_for_everything(2)
    states = [ScanState.empty((50, 4), 1) for _ in range(4)]
    callers = [threading.Thread(target=count_items, args=(own,), kwargs={"times": 100}) for own in states]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all((own.u == 1000).all() for own in states)


@pytest.mark.skipif(sys.platform != "linux", reason="torch has another OpenMP here")
def test_the_threads_are_those_of_torch():
    assert threads._openmp() is not None


FORKED = """
import os, sys, torch
from aaren.ops import scan_attention
torch.set_num_threads(2)
scores, values = torch.randn(4, 900, 4), torch.randn(4, 900, 4, 16)
want, _ = scan_attention(scores, values)
child = os.fork()
if child == 0:
    sums = (values * 2.0).sum()  # shared among threads by torch, if it has them
    os._exit(0 if torch.get_num_threads() == 1 and sums.isfinite() else 1)
assert torch.get_num_threads() == 2
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_torch_computes_in_a_forked_child():
    """It would wait for ever for threads that its parent had."""
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=120).returncode == 0
