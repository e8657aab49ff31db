import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from aaren.errors import ConfigError, StateError
from aaren.nn import Encoder, EncoderConfig
from aaren.nn.sequence_parallel import sequence_parallel, sum_gradients

WORKER = Path(__file__).parent / "distributed_worker.py"


@pytest.mark.slow
def test_two_processes_equal_one() -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launch, str(WORKER)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def group_of_one(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
def test_a_single_rank_changes_nothing() -> None:
    encoder, x = Encoder(EncoderConfig(width=8, num_heads=2, dropout=0.0)), torch.randn(2, 5, 8)
    with sequence_parallel(encoder) as exchanges:
        y, _ = encoder(x)
        y.sum().backward()
    expected = [p.grad.clone() for p in encoder.parameters()]
    sum_gradients(encoder)
    assert all(torch.equal(p.grad, e) for p, e in zip(encoder.parameters(), expected, strict=True))
    torch.testing.assert_close(y, encoder(x)[0])
    assert [exchange.sent_bytes for exchange in exchanges] == [0, 0]
    sum_gradients(encoder.fold())  # nothing to add up


@pytest.mark.usefixtures("group_of_one")
def test_bad_use() -> None:
    softmax = Encoder(EncoderConfig(width=8, num_heads=2, mixer="softmax"))
    with pytest.raises(ConfigError, match="this model has SoftmaxAttention"), sequence_parallel(softmax):
        pass
    encoder = Encoder(EncoderConfig(width=8, num_heads=2))
    with sequence_parallel(encoder) as exchanges:
        with pytest.raises(ConfigError, match="leave cu_seqlens out"):
            encoder(torch.randn(1, 4, 8), cu_seqlens=torch.tensor([0, 4]))
        exchanges[0].previous = 0  # as on a later rank
        with pytest.raises(StateError, match="only the first rank begins with a state"):
            encoder(torch.randn(1, 4, 8), encoder.init_state(1))
    encoder(torch.randn(1, 4, 8), cu_seqlens=torch.tensor([0, 4]))  # outside the block all is as before
