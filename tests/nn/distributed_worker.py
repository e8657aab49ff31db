"""Run by torchrun on every rank: trains or spreads a small encoder and compares it with one process."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from aaren.nn import Encoder, EncoderConfig
from aaren.nn.sequence_parallel import sequence_parallel, sum_gradients

CONFIG = EncoderConfig(width=8, num_heads=2, num_layers=3, dropout=0.0, decay="learned")


def data_parallel() -> None:
    """One DDP step over halves of a batch gives the gradient of the whole batch."""
    rank = dist.get_rank()
    torch.manual_seed(3)
    encoder, x = Encoder(CONFIG, dtype=torch.float64), torch.randn(4, 6, 8, dtype=torch.float64)
    alone = Encoder(CONFIG, dtype=torch.float64)
    alone.load_state_dict(encoder.state_dict())
    alone(x)[0].square().mean().backward()
    parallel = DistributedDataParallel(encoder)
    for _ in range(2):  # the second pass would fail if a parameter had got no gradient in the first
        encoder.zero_grad()
        parallel(x[2 * rank : 2 * rank + 2])[0].square().mean().backward()
    for found, expected in zip(encoder.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def spread_sequence() -> None:
    """Pieces of a sequence on two ranks give the outputs and gradients of the whole, for any length."""
    rank = dist.get_rank()
    sent = []
    for length, cut in ((9, 4), (40, 25)):
        torch.manual_seed(4)
        encoder = Encoder(CONFIG, dtype=torch.float64)
        alone = Encoder(CONFIG, dtype=torch.float64)
        alone.load_state_dict(encoder.state_dict())
        whole = torch.randn(2, length, 8, dtype=torch.float64)
        mask = torch.ones(2, length, dtype=torch.bool)
        mask[1, -3:] = mask[0, 0] = False
        weights = torch.randn(2, length, 8, dtype=torch.float64) * mask.unsqueeze(-1)
        _, before = alone(torch.randn(2, 3, 8, dtype=torch.float64))
        before = before.detach()
        x = whole.clone().requires_grad_()
        expected, expected_state = alone(x, before, mask=mask)
        (expected * weights).sum().backward()

        mine = slice(0, cut) if rank == 0 else slice(cut, length)
        piece = whole[:, mine].clone().requires_grad_()
        with sequence_parallel(encoder) as exchanges:
            y, state = encoder(piece, before if rank == 0 else None, mask=mask[:, mine])
            (y * weights[:, mine]).sum().backward()
        sum_gradients(encoder)
        torch.testing.assert_close(y, expected[:, mine])
        torch.testing.assert_close(piece.grad, x.grad[:, mine])
        for found, reference in zip(encoder.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(found.grad, reference.grad)
        if rank == 1:
            for layer, reference in zip(state.layers, expected_state.layers, strict=True):
                torch.testing.assert_close(
                    layer.w / layer.u.unsqueeze(-1), reference.w / reference.u.unsqueeze(-1)
                )
        sent.append([exchange.sent_bytes for exchange in exchanges])
        # From nothing, the first rank keeps the key bias out of its scores and must still pass its weight on.
        with torch.no_grad(), sequence_parallel(encoder):
            from_nothing, _ = encoder(whole[:, mine], mask=mask[:, mine])
            torch.testing.assert_close(from_nothing, alone(whole, mask=mask)[0][:, mine])
    heads, width, state_bytes = 2, 4, 8
    forward, back = 2 * heads * (2 + width) * state_bytes, 2 * heads * (1 + width) * state_bytes
    assert sent == [[forward if rank == 0 else back] * 3] * 2, sent


def main() -> None:
    """Join the group and run what was asked for."""
    dist.init_process_group("gloo")
    {"data_parallel": data_parallel, "spread_sequence": spread_sequence}[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
