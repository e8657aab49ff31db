"""Sequence-parallel training: one long sequence, consecutive pieces of it on the ranks of a process group.

In the forward pass every Aaren layer receives the state of all earlier pieces from the rank before, scans its
own piece and sends the state on: (2 + d) numbers per stream and head, however long the pieces are. In the
backward pass the gradients of u and w, (1 + d) numbers, travel the other way. Outputs and gradients equal
those of one process. Ranks do not wait for whole layers, only for the scan of the rank before.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from aaren.errors import ConfigError, StateError
from aaren.nn.embedding import PositionState
from aaren.nn.mixer import Mixer
from aaren.ops import ScanState
from aaren.ops.state import default_state_dtype
from aaren.shapes import Scores, SequenceBounds, Values


@contextmanager
def sequence_parallel(
    model: nn.Module, group: dist.ProcessGroup | None = None
) -> "Iterator[list[StateExchange]]":
    """Let every Aaren layer of a model begin where the rank before ended, inside the `with` block.

    Each rank holds the whole model and its own piece of the sequence, pieces in the order of the ranks.
    Outputs are those of the piece; the state that the last rank returns is the sequence's. Losses are local:
    call backward on every rank, inside or after the block, then add the gradients up with `sum_gradients`.
    Layers may be checkpointed, alike on all ranks; then call backward before the model is used otherwise.

    Args:
        model: any module whose layers over time are all `AarenAttention`.
        group: the ranks; default: all.

    Yields:
        The layers' exchanges, which count the bytes they send.
    """
    others = [m for m in model.modules() if isinstance(m, Mixer) and not hasattr(m, "exchange")]
    if others:
        raise ConfigError(
            f"sequence_parallel needs layers that can hand their state to the next rank; this model has "
            f"{type(others[0]).__name__}. Use mixer='aaren', not folded."
        )
    layers = [module for module in model.modules() if hasattr(module, "exchange")]
    exchanges = [StateExchange(group, tag) for tag in range(len(layers))]
    for layer, exchange in zip(layers, exchanges, strict=True):
        layer.exchange = exchange  # type: ignore[assignment]  # a Module says that it has only modules
    try:
        yield exchanges
    finally:
        for exchange in exchanges:
            exchange.is_open = False


def sum_gradients(model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Add up the parameters' gradients over all ranks: every rank then has the whole sequence's."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        return
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat, group=group)
    for parameter, total in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        parameter.grad = total.view_as(parameter).clone()


class StateExchange:
    """One layer's link to the ranks before and after; counts what it sends."""

    def __init__(self, group: dist.ProcessGroup | None, tag: int) -> None:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        self.group = group
        self.tag = tag
        self.previous = None if rank == 0 else _global_rank(group, rank - 1)
        self.next = None if rank == size - 1 else _global_rank(group, rank + 1)
        self.sent_bytes = 0
        self.is_open = True  # inside the block

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        """Leave a copy of the layer without a link."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave a pickled layer without a link."""
        return type(None), ()

    def receive(
        self, state: ScanState | None, scores: Scores, values: Values, bounds: SequenceBounds | None
    ) -> ScanState | None:
        """Return the state of all pieces before this one; on the first rank, the one that was passed in."""
        if bounds is not None:
            raise ConfigError("sequence_parallel splits one sequence over ranks; leave cu_seqlens out.")
        if self.previous is None:
            return state
        self._refuse_own(state)
        # Any input that needs a gradient ties the received state into the graph, so that its gradient is sent
        # back.
        u, w, m = _Receive.apply(scores, values, self)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return ScanState(m, u, w)

    def send(self, outputs: Values, state: ScanState) -> Values:
        """Pass the state on to the next rank; return the outputs, tied to the gradients from there."""
        if self.next is None:
            return outputs
        sent: Values = _Send.apply(outputs, *state, self)  # type: ignore[no-untyped-call]  # as above
        return sent

    def receive_tensor(self, tensor: Tensor | None, like: Tensor, ties: Sequence[Tensor]) -> Tensor | None:
        """Return what the rank before sent, as `receive` does: a part of a state without a scale of its own.

        Args:
            tensor: what was passed in; on later ranks, None.
            like: a tensor of the shape and dtype that are sent.
            ties: what the outputs are made of: where any of it needs a gradient, the received one does.
        """
        if self.previous is None:
            return tensor
        self._refuse_own(tensor)
        received: Tensor = _ReceiveTensor.apply(self, like, *ties)  # type: ignore[no-untyped-call]  # as above
        return received

    def send_tensor(self, outputs: Tensor, tensor: Tensor) -> Tensor:
        """Pass a tensor on to the next rank; return the outputs, tied to the gradients from there."""
        if self.next is None:
            return outputs
        sent: Tensor = _SendTensor.apply(outputs, tensor, self)  # type: ignore[no-untyped-call]  # as above
        return sent

    def receive_count(
        self, state: PositionState | None, batch_size: int, device: torch.device
    ) -> PositionState | None:
        """Return how many items each stream had on the ranks before."""
        if self.previous is None:
            return state
        self._refuse_own(state)
        return PositionState(
            self.get(torch.empty(batch_size, dtype=torch.int64, device=device), self.previous)
        )

    def send_count(self, count: Tensor) -> None:
        """Tell the next rank how many items each stream had so far."""
        if self.next is not None:
            self.put(count, self.next)

    def _refuse_own(self, state: object) -> None:
        if state is not None:
            raise StateError(
                "under sequence_parallel, only the first rank begins with a state; the others get theirs "
                "from the rank before. Pass state=None here."
            )

    def put(self, tensor: Tensor, rank: int) -> None:
        """Send one message."""
        dist.send(tensor.contiguous(), rank, group=self.group, tag=self.tag)
        self.sent_bytes += tensor.nbytes

    def get(self, tensor: Tensor, rank: int) -> Tensor:
        """Wait for one message of this tensor's size."""
        dist.recv(tensor, rank, group=self.group, tag=self.tag)
        return tensor


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        scores: Scores,  # noqa: ARG004 - only ties the graph
        values: Values,
        exchange: StateExchange,
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, _, heads, width = values.shape
        assert exchange.previous is not None
        message = torch.empty(
            (batch, heads, 2 + width), dtype=default_state_dtype(values.device), device=values.device
        )
        message = exchange.get(message, exchange.previous)
        ctx.exchange = exchange  # type: ignore[attr-defined]  # a context carries what it is given
        m, u, w = message[..., 0].clone(), message[..., 1].clone(), message[..., 2:].clone()
        ctx.mark_non_differentiable(m)
        return u, w, m

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_u: Tensor, grad_w: Tensor, *_: Tensor
    ) -> tuple[None, None, None]:
        exchange: StateExchange = ctx.exchange  # type: ignore[attr-defined]
        assert exchange.previous is not None
        exchange.put(torch.cat([grad_u.unsqueeze(-1), grad_w], dim=-1), exchange.previous)
        return None, None, None


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        outputs: Values,
        m: Tensor,
        u: Tensor,
        w: Tensor,
        exchange: StateExchange,
    ) -> Values:
        assert exchange.next is not None
        exchange.put(torch.cat([m.unsqueeze(-1), u.unsqueeze(-1), w], dim=-1), exchange.next)
        ctx.exchange = exchange  # type: ignore[attr-defined]  # a context carries what it is given
        ctx.save_for_backward(u, w)
        return outputs.view_as(outputs)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_outputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        exchange: StateExchange = ctx.exchange  # type: ignore[attr-defined]
        u, w = ctx.saved_tensors  # type: ignore[attr-defined]
        assert exchange.next is not None
        message = exchange.get(
            torch.empty((*u.shape, 1 + w.shape[-1]), dtype=u.dtype, device=u.device), exchange.next
        )
        grad_u, grad_w = message[..., 0], message[..., 1:]
        # m is a normaliser: what it is worth follows from the pair, so it need not be sent.
        grad_m = u * grad_u + (w * grad_w).sum(-1)
        return grad_outputs, grad_m, grad_u, grad_w, None


class _ReceiveTensor(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        exchange: StateExchange,
        like: Tensor,
        *ties: Tensor,  # only tie the graph
    ) -> Tensor:
        assert exchange.previous is not None
        ctx.exchange, ctx.count = exchange, len(ties)  # type: ignore[attr-defined]  # a context carries these
        return exchange.get(torch.empty_like(like), exchange.previous)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[None, ...]:
        exchange: StateExchange = ctx.exchange  # type: ignore[attr-defined]
        assert exchange.previous is not None
        exchange.put(gradient, exchange.previous)
        count: int = ctx.count  # type: ignore[attr-defined]
        return (None,) * (2 + count)


class _SendTensor(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, outputs: Tensor, tensor: Tensor, exchange: StateExchange
    ) -> Tensor:
        assert exchange.next is not None
        exchange.put(tensor, exchange.next)
        ctx.exchange = exchange  # type: ignore[attr-defined]  # a context carries what it is given
        ctx.save_for_backward(tensor)
        return outputs.view_as(outputs)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_outputs: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        exchange: StateExchange = ctx.exchange  # type: ignore[attr-defined]
        (tensor,) = ctx.saved_tensors  # type: ignore[attr-defined]
        assert exchange.next is not None
        return grad_outputs, exchange.get(torch.empty_like(tensor), exchange.next), None


def _global_rank(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
