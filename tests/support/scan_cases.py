"""Cases for the operator: random inputs of every kind, and what a user can observe of a result."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aaren.ops import ScanState, read, scan_attention

LENGTHS = (0, 1, 2, 63, 64, 65)


@dataclass
class ScanCase:
    """Arguments of scan_attention, all of them leaves that want gradients."""

    scores: Tensor
    values: Tensor
    options: dict[str, object] = field(default_factory=dict)

    def leaves(self) -> list[Tensor]:
        state = self.options.get("initial_state") or ()
        log_decay = self.options.get("log_decay")
        return [self.scores, self.values, *([] if log_decay is None else [log_decay]), *state]

    def observe(self, backend: str, *, seed: int = 0) -> list[Tensor]:
        """Return outputs, the final state as users can see it, and the gradients of a random loss on both."""
        outputs, final = scan_attention(self.scores, self.values, backend=backend, **self.options)
        seen = [outputs, *visible(final)]
        generator = torch.Generator().manual_seed(seed)
        loss = sum((x * torch.randn(x.shape, dtype=x.dtype, generator=generator)).sum() for x in seen)
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            return seen
        return [*seen, *torch.autograd.grad(loss, self.leaves(), materialize_grads=True)]


def visible(state: ScanState) -> tuple[Tensor, Tensor]:
    """Return m + log u (0 where empty) and w / u: all that later results can depend on."""
    safe = torch.where(state.u == 0, 1.0, state.u)
    return torch.where(state.u == 0, 0.0, state.m + safe.log()), read(state)


def make_case(
    seed: int,
    *,
    batch: int = 2,
    length: int = 65,
    heads: int = 3,
    width: int = 5,
    kind: str = "normal",
    masked: bool = False,
    decaying: bool = False,
    carried: bool = False,
    dtype: torch.dtype = torch.float64,
) -> ScanCase:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    scores = {
        "normal": lambda: normal(batch, length, heads),
        "jumps120": lambda: normal(batch, length, heads) + 120 * normal(batch, length, heads).sign(),
        "jumps1e4": lambda: normal(batch, length, heads) + 1e4 * normal(batch, length, heads).round(),
        "constant": lambda: torch.full((batch, length, heads), -300.0, dtype=torch.float64),
    }[kind]()
    case = ScanCase(
        scores.to(dtype).requires_grad_(), normal(batch, length, heads, width).to(dtype).requires_grad_()
    )
    if masked:
        mask = torch.rand(batch, length, generator=generator) > 0.4
        mask[:, :3] = False  # an all-masked prefix
        mask[0, length // 2 :] &= batch == 1  # a long masked tail
        case.options["mask"] = mask
    if decaying:
        log_decay = -torch.rand(batch, length, heads, generator=generator, dtype=torch.float64)
        log_decay[torch.rand(batch, length, heads, generator=generator) < 0.1] = -math.inf
        log_decay[torch.rand(batch, length, heads, generator=generator) < 0.1] = 0.0
        case.options["log_decay"] = log_decay.to(dtype).requires_grad_()
    if carried:
        state = ScanState(normal(batch, heads), normal(batch, heads).abs(), normal(batch, heads, width))
        empty = ScanState.empty((heads,), width)
        for part, nothing in zip(state, empty, strict=True):
            part[0] = nothing
            part.requires_grad_()
        case.options["initial_state"] = state
    return case


def assert_same(got: list[Tensor], want: list[Tensor], *, tolerance: float) -> None:
    assert len(got) == len(want)
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.isfinite().all(), f"item {index} is not finite"
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, msg=lambda m, i=index: f"item {i}: {m}"
        )
