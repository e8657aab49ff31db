"""Every backend and mixer against the definition: `naive`, in float64, on the CPU."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor, nn

from aaren.check.outcome import (
    LAYER_LIMITS,
    SCAN_LIMITS,
    Errors,
    Outcome,
    SkippedError,
    attempt,
    auto_is,
    difference,
)
from aaren.errors import AarenError
from aaren.nn import Encoder, EncoderConfig
from aaren.nn.block import MIXERS
from aaren.ops import ScanState, scan_attention
from aaren.ops.dispatch import BACKENDS, HOMES
from aaren.ops.state import as_token

BATCH, LENGTH, HEADS, WIDTH = 2, 130, 2, 8  # three blocks, the last one nearly empty
NUM_STEPS = 6  # the last items of a sequence, one by one
SEED = 20240523


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanCase:
    """Inputs of `scan_attention`."""

    scores: Tensor
    values: Tensor
    mask: Tensor | None = None
    log_decay: Tensor | None = None
    initial: ScanState | None = None


def dtypes_of(device: torch.device) -> list[torch.dtype]:
    """Return the dtypes to check on a device; MPS has no float64."""
    return [dtype for dtype in SCAN_LIMITS if device.type != "mps" or dtype != torch.float64]


def check_backends(device: torch.device) -> Iterator[Callable[[], Outcome]]:
    """Yield one check per backend and dtype."""
    for name in BACKENDS:
        for dtype in dtypes_of(device):
            yield partial(attempt, "backend", name, dtype, partial(_check_backend, name, dtype, device))


def check_mixers(device: torch.device) -> Iterator[Callable[[], Outcome]]:
    """Yield one check per mixer and dtype, each in a stack of two layers."""
    for name in (*MIXERS, "aaren, decay"):
        for dtype in LAYER_LIMITS:
            if dtype in dtypes_of(device):
                yield partial(attempt, "mixer", name, dtype, partial(_check_mixer, name, dtype, device))


def reason_to_skip(backend: str, device: torch.device) -> str:
    """Say why a backend cannot run on a device; "" if it can."""
    home = HOMES.get(backend, device.type)
    if home != device.type:
        return f"runs on {home} only"
    if backend == "naive" and device.type == "mps":
        return "needs float64, which mps lacks"
    try:
        scan_attention(
            torch.zeros(1, 2, 1, device=device), torch.zeros(1, 2, 1, 4, device=device), backend=backend
        )
    except AarenError as error:
        return str(error)
    return ""


def _check_backend(name: str, dtype: torch.dtype, device: torch.device) -> Errors:
    reason = reason_to_skip(name, device)
    if reason:
        raise SkippedError(reason)
    errors = {"forward": 0.0, "backward": 0.0, "step": 0.0}
    for case, wanted in zip(_cases(dtype), _truths(dtype), strict=True):
        found = _observe(case, name, device)
        # Outputs, what states amount to, and gradients differ in size: each is held to its own.
        for a, b in zip(found[0], wanted[0], strict=True):
            errors["forward"] = max(errors["forward"], difference([a], [b]))
        errors["backward"] = max(errors["backward"], difference(found[1], wanted[1]))
        steps = _step_through(case, name, device)
        errors["step"] = max(errors["step"], difference([steps], [wanted[0][0][:, -NUM_STEPS:]]))
    return errors, dict.fromkeys(errors, SCAN_LIMITS[dtype])


def _cases(dtype: torch.dtype) -> list[ScanCase]:
    """Return inputs of every kind: plain; mask, decay and resets; states; scores of 1e4."""
    generator = torch.Generator().manual_seed(SEED)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator).to(dtype)

    scores, values = normal(BATCH, LENGTH, HEADS), normal(BATCH, LENGTH, HEADS, WIDTH)
    mask = torch.rand(BATCH, LENGTH, generator=generator) > 0.3
    mask[:, :3] = False
    log_decay = -torch.rand(BATCH, LENGTH, HEADS, generator=generator).to(dtype)
    log_decay[:, 40] = log_decay[0, 100] = -torch.inf
    state = ScanState(
        torch.randn(BATCH, HEADS, generator=generator).double(),
        torch.rand(BATCH, HEADS, generator=generator).double() + 0.5,
        torch.randn(BATCH, HEADS, WIDTH, generator=generator).double(),
    )
    for part, nothing in zip(state, ScanState.empty((HEADS,), WIDTH), strict=True):
        part[0] = nothing
    jumps = (1e4 * torch.randn(scores.shape, generator=generator).round()).to(dtype)
    return [
        ScanCase(scores=scores, values=values),
        ScanCase(scores=scores, values=values, mask=mask, log_decay=log_decay),
        ScanCase(scores=scores, values=values, log_decay=log_decay, initial=state),
        ScanCase(scores=scores + jumps, values=values, mask=mask),
    ]


@cache
def _truths(dtype: torch.dtype) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Return what the definition says of every case."""
    found = []
    for case in _cases(dtype):
        log_decay = None if case.log_decay is None else case.log_decay.double()
        exact = replace(case, scores=case.scores.double(), values=case.values.double(), log_decay=log_decay)
        found.append(_observe(exact, "naive", torch.device("cpu")))
    return found


def _observe(case: ScanCase, backend: str, device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Return outputs and what the final state amounts to, and the gradients of a loss on the outputs."""
    leaves = [
        tensor.detach().to(device).requires_grad_()
        for tensor in (case.scores, case.values, case.log_decay)
        if tensor is not None
    ]
    initial = None
    if case.initial is not None:
        initial = ScanState(*(part.detach().requires_grad_() for part in _move(case.initial, device)))
    outputs, final = scan_attention(
        leaves[0],
        leaves[1],
        mask=None if case.mask is None else case.mask.to(device),
        log_decay=None if case.log_decay is None else leaves[2],
        initial_state=initial,
        backend=backend,
    )
    score, mean = as_token(final)
    loss = (outputs * _loss_weights(outputs)).sum()
    gradients = torch.autograd.grad(loss, [*leaves, *(initial or ())], materialize_grads=True)
    return [outputs, torch.where(final.u == 0, 0.0, score), mean], list(gradients)


def _step_through(case: ScanCase, backend: str, device: torch.device) -> Tensor:
    """Return the outputs of the last items, taken in one by one after all others at once."""
    first = LENGTH - NUM_STEPS
    cuts = [(0, first), *((k, k + 1) for k in range(first, LENGTH))]
    outputs: list[Tensor] = []
    state = None if case.initial is None else _move(case.initial, device)
    with torch.no_grad():
        for start, stop in cuts:
            piece, state = scan_attention(
                case.scores[:, start:stop].to(device),
                case.values[:, start:stop].to(device),
                mask=None if case.mask is None else case.mask[:, start:stop].to(device),
                log_decay=None if case.log_decay is None else case.log_decay[:, start:stop].to(device),
                initial_state=state,
                backend=backend,
            )
            outputs.append(piece)
    return torch.cat(outputs[1:], dim=1)


def _move(state: ScanState, device: torch.device) -> ScanState:
    return state.to(torch.float32, device) if device.type == "mps" else state.to(device)


def _loss_weights(outputs: Tensor) -> Tensor:
    """Return the same normals for every device and dtype."""
    generator = torch.Generator().manual_seed(SEED + 1)
    return torch.randn(outputs.shape, generator=generator).to(outputs)


def _check_mixer(name: str, dtype: torch.dtype, device: torch.device) -> Errors:
    kind, _, decay = name.partition(", ")
    config = EncoderConfig(
        width=16,
        num_heads=2,
        num_layers=2,
        ff_width=32,
        dropout=0.0,
        mixer=kind,
        decay="learned" if decay else None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        exact = Encoder(config)
    tested = copy.deepcopy(exact).to(device, dtype)
    exact = exact.double()
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(BATCH, LENGTH, config.width, generator=generator)
    with auto_is("naive"):
        wanted = _observe_module(exact, x.double())
    found = _observe_module(tested, x.to(device, dtype))
    with torch.no_grad():
        _, state = tested(x[:, :-NUM_STEPS].to(device, dtype))
        steps: list[Tensor] = []
        for k in range(LENGTH - NUM_STEPS, LENGTH):
            output, state = tested.step(x[:, k].to(device, dtype), state)
            steps.append(output)
    errors = {
        "forward": difference([found[0]], [wanted[0]]),
        "backward": difference(found[1], wanted[1]),
        "step": difference([torch.stack(steps, dim=1)], [wanted[0][:, -NUM_STEPS:]]),
    }
    return errors, dict.fromkeys(errors, LAYER_LIMITS[dtype])


def _observe_module(module: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    outputs, _ = module(x)
    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad((outputs * _loss_weights(outputs)).sum(), weights)
    return outputs, list(gradients)
