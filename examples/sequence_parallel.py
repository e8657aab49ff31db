"""Spread one long sequence over processes: each scans its piece, and states are all that they exchange.

A state does not hold how much its piece decays what came earlier: the sum of its decays is exchanged too.
"""

import copy
import tempfile

import torch
import torch.distributed as dist
from torch import Tensor, nn

from aaren.nn import Encoder
from aaren.ops import ScanState, combine

PROCESSES = 2


class Gather(torch.autograd.Function):
    """All ranks' tensors, stacked; their gradients are added up over the ranks."""

    @staticmethod
    def forward(_ctx: object, part: Tensor) -> Tensor:
        parts = [torch.empty_like(part) for _ in range(PROCESSES)]
        dist.all_gather(parts, part.contiguous())
        return torch.stack(parts)

    @staticmethod
    def backward(_ctx: object, gradient: Tensor) -> Tensor:
        dist.all_reduce(gradient := gradient.clone())
        return gradient[dist.get_rank()]


class SpreadAttention(nn.Module):
    """An Aaren layer whose sequence lies in consecutive pieces on the ranks."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, _state: None, **options: Tensor | None) -> tuple[Tensor, ScanState]:
        before, piece = self.layer.init_state(len(x)), self.layer(x, **options)[1]
        decays = self.layer.total_decay(x, options["log_decay"])
        total = torch.zeros_like(piece.m) if decays is None else decays.sum(1)
        for rank, (m, u, w, rates) in enumerate(zip(*map(Gather.apply, (*piece, total)), strict=True)):
            is_earlier = rank < dist.get_rank()  # later pieces weigh 0, and so take part in the backward pass
            earlier = ScanState(m, u * is_earlier, w * is_earlier)
            before = combine(before, earlier, log_decay=rates * is_earlier)
        return self.layer(x, before, **options)


def run(rank: int, rendezvous: str) -> None:
    dist.init_process_group("gloo", f"file://{rendezvous}", rank=rank, world_size=PROCESSES)
    torch.manual_seed(0)
    alone = Encoder(width=16, num_heads=4, num_layers=2, gates="both", dropout=0.0, dtype=torch.float64)
    x, spread = torch.randn(2, 100, 16, dtype=torch.float64), copy.deepcopy(alone)
    for block in spread.layers:
        block.mixer = SpreadAttention(block.mixer)
    piece, expected = spread(x.chunk(PROCESSES, dim=1)[rank])[0], alone(x)[0]
    torch.testing.assert_close(piece, expected.chunk(PROCESSES, dim=1)[rank])
    piece.square().sum().backward()
    expected.square().sum().backward()
    for weight, reference in zip(spread.parameters(), alone.parameters(), strict=True):
        dist.all_reduce(weight.grad)  # each process has the gradient of its piece
        torch.testing.assert_close(weight.grad, reference.grad)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (f"{folder}/rendezvous",), nprocs=PROCESSES)
    print(f"{PROCESSES} processes: the same outputs and gradients as one")
