"""The contenders of `aaren bench scan`: each one's inputs and its one call, from a name and a shape.

All are built from the same seeded values. Results come back as tensors, so that the caller can compare them
with a float64 run of the same contender.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.ops import scan_attention
from aaren.ops.state import Items, ScanState

Results: TypeAlias = tuple[Tensor, ...]  # outputs, then the gradients of the inputs
Call: TypeAlias = Callable[[], Results]

FORWARD, FORWARD_BACKWARD = "forward", "forward+backward"
PASSES = (FORWARD, FORWARD_BACKWARD)
SEED = 20240523
NAIVE_TRUTH_LENGTH = 256  # beyond it the definition takes gigabytes; tests hold fused to naive in float64


class Shape(NamedTuple):
    """(b, t, h, d) of the values."""

    batch: int
    length: int
    heads: int
    width: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """What the tables need to know of a contender."""

    label: str
    build: Callable[[str, Shape, str, torch.dtype, int], Call]
    is_preallocated: bool = False  # writes into buffers made beforehand: peak memory says nothing
    has_truth: bool = True
    goes_long: bool = False  # takes part beyond 8,192 items
    longest: int | None = None  # it is skipped beyond so many items
    reason: str = ""  # why


def build(
    name: str,
    shape: Shape,
    direction: str,
    dtype: torch.dtype = torch.float32,
    num_entries: int | None = None,
) -> Call:
    """Prepare inputs and return the call to measure.

    Args:
        name: a key of CONTENDERS.
        shape: of the values.
        direction: FORWARD (without autograd, as at inference) or FORWARD_BACKWARD (as in training).
        dtype: of the inputs.
        num_entries: keep only so many entries of the batch; the rest of the inputs does not change.
    """
    entries = shape.batch if num_entries is None else num_entries
    return CONTENDERS[name].build(name, shape, direction, dtype, entries)


def _random(*sizes: int, stream: int, dtype: torch.dtype, entries: int) -> Tensor:
    """Draw float32 normals, the same for every dtype, and keep the first entries of the batch."""
    generator = torch.Generator().manual_seed(SEED + stream)
    return torch.randn(*sizes, generator=generator)[:entries].to(dtype)


def _values_and_gradient(shape: Shape, dtype: torch.dtype, entries: int) -> tuple[Tensor, Tensor]:
    return (
        _random(*shape, stream=0, dtype=dtype, entries=entries),
        _random(*shape, stream=1, dtype=dtype, entries=entries),
    )


def _build_copy(name: str, shape: Shape, direction: str, dtype: torch.dtype, entries: int) -> Call:  # noqa: ARG001
    values, _ = _values_and_gradient(shape, dtype, entries)
    outputs = torch.empty_like(values)

    def call() -> Results:
        return (outputs.copy_(values),)

    call()  # touch every page
    return call


def _build_kernel(name: str, shape: Shape, direction: str, dtype: torch.dtype, entries: int) -> Call:  # noqa: ARG001
    """Call the compiled kernel on buffers that exist, without torch's operators and autograd around it."""
    from aaren.ops.cpu import fused

    values, grad = _values_and_gradient(shape, dtype, entries)
    scores = _random(*shape[:3], stream=2, dtype=dtype, entries=entries)
    items = Items(scores, values)
    initial, state, grads = (ScanState.empty((entries, shape.heads), shape.width) for _ in range(3))
    outputs, grad_values, grad_scores = (torch.zeros_like(x) for x in (values, values, scores))
    gates, forgets = scores.double(), scores.double()

    def forward() -> Results:
        fused.forward(items, initial, (outputs, *state, gates, forgets))
        return (outputs,)

    def forward_backward() -> Results:
        forward()
        saved, found = (outputs, gates, forgets, state.u), (grad_scores, grad_values, None, *grads)
        fused.backward((grad, None, None), items, initial, saved, found)
        return outputs, grad_scores, grad_values

    return forward if direction == FORWARD else forward_backward


def _build_scan(name: str, shape: Shape, direction: str, dtype: torch.dtype, entries: int) -> Call:
    values, grad = _values_and_gradient(shape, dtype, entries)
    scores = _random(*shape[:3], stream=2, dtype=dtype, entries=entries)

    def run(scores: Tensor, values: Tensor) -> Tensor:
        if name == "paper_scan":
            return paper_scan(scores, values)
        return scan_attention(scores, values, backend=name)[0]

    return _as_user(run, (scores, values), grad, direction)


def paper_scan(scores: Tensor, values: Tensor) -> Tensor:
    """Attend to every prefix as the paper's Algorithm 1 says: Hillis and Steele's scan, in the inputs' dtype.

    What one writes from the paper, and no more: no mask, decay or state. Offsets begin at 1, not at 2 as
    printed, and there is no m_0.

    >>> paper_scan(torch.zeros(1, 3, 1), torch.tensor([1.0, 3.0, 8.0]).view(1, 3, 1, 1)).flatten()
    tensor([1., 2., 4.])
    """
    m, u, w = scores, torch.ones_like(scores), values
    offset = 1
    while offset < scores.shape[1]:
        highest = torch.maximum(m[:, :-offset], m[:, offset:]).detach()  # gradients cancel
        before, here = torch.exp(m[:, :-offset] - highest), torch.exp(m[:, offset:] - highest)
        joined_u = u[:, :-offset] * before + u[:, offset:] * here
        joined_w = w[:, :-offset] * before.unsqueeze(-1) + w[:, offset:] * here.unsqueeze(-1)
        m = torch.cat([m[:, :offset], highest], dim=1)
        u = torch.cat([u[:, :offset], joined_u], dim=1)
        w = torch.cat([w[:, :offset], joined_w], dim=1)
        offset *= 2
    return w / u.unsqueeze(-1)


def _build_sdpa(name: str, shape: Shape, direction: str, dtype: torch.dtype, entries: int) -> Call:  # noqa: ARG001
    # (b, h, t, d), contiguous: the layout it likes best; transposing is not timed.
    values, grad = (tensor.transpose(1, 2) for tensor in _values_and_gradient(shape, dtype, entries))
    query, keys = (
        _random(*shape, stream=stream, dtype=dtype, entries=entries).transpose(1, 2) for stream in (3, 4)
    )
    inputs = tuple(tensor.contiguous() for tensor in (query, keys, values))
    return _as_user(
        lambda *qkv: F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True),
        inputs,
        grad.contiguous(),
        direction,
    )


def _build_rnn(name: str, shape: Shape, direction: str, dtype: torch.dtype, entries: int) -> Call:
    channels = shape.heads * shape.width
    values, grad = (tensor.flatten(2) for tensor in _values_and_gradient(shape, dtype, entries))
    with torch.random.fork_rng(devices=[]):  # PyTorch's layers draw from the global generator
        torch.manual_seed(SEED)
        layer: nn.Module = (nn.GRU if name == "gru" else nn.LSTM)(channels, channels, batch_first=True)
    layer = layer.to(dtype)

    def run(*inputs: Tensor) -> Tensor:
        layer.zero_grad()
        outputs: Tensor = layer(inputs[0])[0]
        return outputs

    return _as_user(run, (values,), grad, direction)


def _as_user(run: Callable[..., Tensor], inputs: Results, grad: Tensor, direction: str) -> Call:
    """Call as a user would: without autograd at inference, with a backward pass in training."""

    @torch.no_grad()
    def forward() -> Results:
        return (run(*inputs),)

    def forward_backward() -> Results:
        for leaf in inputs:
            leaf.grad = None
        outputs = run(*inputs)
        torch.autograd.backward(outputs, grad)
        gradients = [leaf.grad for leaf in inputs]
        return (outputs.detach(), *(gradient for gradient in gradients if gradient is not None))

    if direction == FORWARD:
        return forward
    for leaf in inputs:
        leaf.requires_grad_()
    return forward_backward


CONTENDERS: dict[str, Contender] = {
    "copy": Contender(
        label="copy of the values", build=_build_copy, is_preallocated=True, has_truth=False, goes_long=True
    ),
    "kernel": Contender(
        label="fused, kernel only", build=_build_kernel, is_preallocated=True, goes_long=True
    ),
    "fused": Contender(label="fused", build=_build_scan, goes_long=True),
    "chunked": Contender(label="chunked", build=_build_scan, goes_long=True),
    "paper_scan": Contender(label="paper's scan", build=_build_scan),
    "hillis_steele": Contender(label="hillis_steele", build=_build_scan),
    "ladner_fischer": Contender(label="ladner_fischer", build=_build_scan),
    "recurrent": Contender(label="recurrent", build=_build_scan),
    # Its terms over all prefixes do not live together, but the heap may grow to their sum, b t²/2 h d.
    "naive": Contender(
        label="naive", build=_build_scan, longest=NAIVE_TRUTH_LENGTH, reason="needs over 10 GB"
    ),
    "triton": Contender(label="triton", build=_build_scan, longest=0, reason="needs CUDA"),
    "sdpa": Contender(label="causal SDPA", build=_build_sdpa),
    "gru": Contender(label="nn.GRU", build=_build_rnn),
    "lstm": Contender(label="nn.LSTM", build=_build_rnn),
}


def truth_name(name: str, shape: Shape) -> str:
    """Return who, in float64, is the truth for a contender: itself, or for scans the definition if short."""
    if CONTENDERS[name].build not in (_build_scan, _build_kernel):
        return name
    return "naive" if shape.length <= NAIVE_TRUTH_LENGTH else "fused"
