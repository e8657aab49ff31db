import os

import pytest
import torch
import torch.utils.deterministic

from aaren.engine.config import EngineConfig
from aaren.engine.determinism import (
    CUDA_WORKSPACE,
    choose_device,
    repeatable,
)
from aaren.errors import ConfigError


def test_switches_are_put_back() -> None:
    os.environ.setdefault(CUDA_WORKSPACE, ":4096:8")
    before = (
        torch.get_num_threads(),
        torch.get_rng_state(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )
    with repeatable(EngineConfig(threads=2), seed=1):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.utils.deterministic.fill_uninitialized_memory == before[2]


def test_determinism_can_be_left_out() -> None:
    with repeatable(EngineConfig(deterministic=False), seed=1):
        assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there() -> None:
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ConfigError, match="torch sees no CUDA device here: use 'cpu' or 'auto'"):
        choose_device("cuda")
