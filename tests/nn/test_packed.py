import pytest
import torch

from aaren.errors import ShapeError
from aaren.nn import GRU, WKV, AarenAttention, SoftmaxAttention


@pytest.mark.parametrize(
    "mixer", [GRU(6), WKV(6), SoftmaxAttention(6, 2), AarenAttention(6, 2)], ids=lambda m: type(m).__name__
)
def test_bad_bounds(mixer: torch.nn.Module) -> None:
    with pytest.raises(ShapeError, match="b must be 1 with cu_seqlens; got b = 2"):
        mixer(torch.randn(2, 3, 6), cu_seqlens=torch.tensor([0, 3]))
    with pytest.raises(ShapeError, match=r"end at t = 3; got \[0, 2\]"):
        mixer(torch.randn(1, 3, 6), cu_seqlens=torch.tensor([0, 2]))
    with pytest.raises(ShapeError, match=r"never decrease and end at t = 5; got \[0, 4, 2, 5\]"):
        mixer(torch.randn(1, 5, 6), cu_seqlens=torch.tensor([0, 4, 2, 5]))
    with pytest.raises(ShapeError, match=r"int32 or int64; got \(2,\) of torch.float32"):
        mixer(torch.randn(1, 3, 6), cu_seqlens=torch.tensor([0.0, 3.0]))
    with pytest.raises(ShapeError, match=r"cu_seqlens must be \(n \+ 1,\)"):
        mixer(torch.randn(1, 3, 6), cu_seqlens=torch.tensor(3))
