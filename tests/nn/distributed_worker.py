"""Run by torchrun on every rank: trains or spreads a small encoder and compares it with one process."""

import copy
import itertools
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from aaren.nn import Conv, Encoder, EncoderConfig
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


def spread_order() -> None:
    """Tails of convolutions and counts of items travel too, also through a piece shorter than a tail."""
    rank = dist.get_rank()
    base = EncoderConfig(width=8, num_heads=2, num_layers=2, dropout=0.0)
    reach = {"kernel": 3, "dilations": (1, 2), "channels": 4}
    for config, cut in itertools.product(
        [
            replace(base, conv=Conv(**reach), position="sinusoid"),
            replace(base, conv=Conv(**reach, where="stem"), position="learned", decay="learned"),
        ],
        [2, 5],
    ):
        torch.manual_seed(4)
        encoder = Encoder(config, dtype=torch.float64)
        alone = copy.deepcopy(encoder)
        x = torch.randn(2, 7, 8, dtype=torch.float64)
        mask = torch.ones(2, 7, dtype=torch.bool)
        mask[0, 1] = mask[1, 5:] = False
        weights = torch.randn(2, 7, 8, dtype=torch.float64) * mask.unsqueeze(-1)
        expected, expected_state = alone(x, mask=mask)
        (expected * weights).sum().backward()
        mine = slice(0, cut) if rank == 0 else slice(cut, 7)
        with sequence_parallel(encoder):
            y, state = encoder(x[:, mine], mask=mask[:, mine])
            (y * weights[:, mine]).sum().backward()
        sum_gradients(encoder)
        is_real = mask[:, mine]
        torch.testing.assert_close(y[is_real], expected[:, mine][is_real])
        for found, reference in zip(encoder.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(found.grad, reference.grad)
        if rank == 1:
            token = torch.randn(2, 8, dtype=torch.float64)
            torch.testing.assert_close(encoder.step(token, state)[0], alone.step(token, expected_state)[0])


def checkpoint_pieces() -> None:
    """What is computed again in the backward pass, inside or after the block, meets the other rank again."""
    rank = dist.get_rank()
    torch.manual_seed(5)
    encoder, alone = (Encoder(CONFIG, dtype=torch.float64) for _ in range(2))
    alone.load_state_dict(encoder.state_dict())
    whole = torch.randn(2, 9, 8, dtype=torch.float64)
    x = whole.clone().requires_grad_()
    alone(x)[0].square().sum().backward()
    mine = slice(0, 4) if rank == 0 else slice(4, 9)

    def run(piece: torch.Tensor, *, is_whole: bool, use_reentrant: bool) -> torch.Tensor:
        if is_whole:
            return checkpoint(lambda part: encoder(part)[0], piece, use_reentrant=use_reentrant)
        for layer in encoder.layers:
            piece = checkpoint(lambda part, layer=layer: layer(part)[0], piece, use_reentrant=use_reentrant)
        return piece

    for is_whole, use_reentrant, is_inside in itertools.product([True, False], repeat=3):
        encoder.zero_grad()
        piece = whole[:, mine].clone().requires_grad_()
        with sequence_parallel(encoder):
            loss = run(piece, is_whole=is_whole, use_reentrant=use_reentrant).square().sum()
            if is_inside:
                loss.backward()
        if not is_inside:
            loss.backward()
        sum_gradients(encoder)
        torch.testing.assert_close(piece.grad, x.grad[:, mine])
        for found, reference in zip(encoder.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(found.grad, reference.grad)
        # Afterwards the model is as before, checkpointed or not, and can be copied.
        x2 = whole.clone().requires_grad_()
        encoder.zero_grad()
        copy.deepcopy(encoder).fold()
        run(x2, is_whole=is_whole, use_reentrant=use_reentrant).square().sum().backward()
        torch.testing.assert_close(x2.grad, x.grad)


def main() -> None:
    """Join the group and run every task; a failure's traceback names it."""
    dist.init_process_group("gloo")
    for task in (data_parallel, spread_sequence, spread_order, checkpoint_pieces):
        task()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
