import os
import subprocess
import sys
import threading

import pytest
import torch

from aaren.ops.cpu import team


@pytest.fixture(scope="module")
def count_job():
    """A job that adds 1 to every item of its shares."""
    from numba import cfunc, types

    from aaren.ops.cpu.shares import SIGNATURE, array_at, read_cuts, read_fields, take_share

    def run(at):
        num_items, counts_at = read_fields(at, 2)
        counts, cuts = array_at(counts_at, num_items, types.int64), read_cuts(at)
        share = take_share(at)
        while share < len(cuts) - 1:
            for place in range(cuts[share], cuts[share + 1]):
                counts[place] += 1
            share = take_share(at)

    compiled = cfunc(SIGNATURE)(run)
    function = team.PROTOTYPE(compiled.address)
    function.compiled = compiled  # which owns the code
    return function


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("is_forked", [False, True])
def test_every_share_is_taken_once(count_job, num_threads, is_forked, monkeypatch):
    monkeypatch.setattr(team, "_is_forked", is_forked)  # threads of our own instead of torch's
    counts = torch.zeros(100_000, dtype=torch.int64)
    for _ in range(20):
        team.run(count_job, range(0, 100_001, 100), (100_000, counts), num_threads=num_threads)
    assert (counts == 20).all()


def test_no_shares_are_no_work(count_job):
    counts = torch.zeros(1, dtype=torch.int64)
    team.run(count_job, [0], (1, counts), num_threads=2)
    assert counts.item() == 0


def test_callers_in_several_threads_do_not_disturb_each_other(count_job):
    counts = [torch.zeros(1000, dtype=torch.int64) for _ in range(4)]

    def call(own: torch.Tensor) -> None:
        for _ in range(200):
            team.run(count_job, range(0, 1001, 100), (1000, own), num_threads=2)

    threads = [threading.Thread(target=call, args=(own,)) for own in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((own == 200).all() for own in counts)


@pytest.mark.skipif(sys.platform != "linux", reason="torch has another OpenMP here")
def test_the_threads_are_those_of_torch():
    assert team._openmp() is not None


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
