import pytest
import torch

from aaren.errors import ShapeError
from aaren.nn import GRU, AarenAttention


@pytest.mark.parametrize("mixer", [GRU(6), AarenAttention(6, 2)], ids=["gru", "aaren"])
def test_bad_bounds(mixer: torch.nn.Module) -> None:
    with pytest.raises(ShapeError, match="b must be 1 with cu_seqlens; got b = 2"):
        mixer(torch.randn(2, 3, 6), cu_seqlens=torch.tensor([0, 3]))
    with pytest.raises(ShapeError, match=r"end at t = 3; got \[0, 2\]"):
        mixer(torch.randn(1, 3, 6), cu_seqlens=torch.tensor([0, 2]))
