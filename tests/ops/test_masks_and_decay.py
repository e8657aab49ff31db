"""One rule in every backend, in `update` and in `step`.

A masked item is the identity; a score of -inf is an item without weight; a decay of -inf is a reset.
"""

import math

import pytest
import torch
from torch import Tensor

from aaren.errors import ShapeError
from aaren.ops import ScanState, combine, decay, read, scan_attention, step, update
from aaren.ops.dispatch import BACKENDS, scan_with_logs
from support.scan_cases import assert_same, make_case, visible

WAYS = [*(name for name in BACKENDS if name != "triton"), "update", "step"]
every_way = pytest.mark.parametrize("way", WAYS)


def attend(way: str, scores: Tensor, values: Tensor, **options) -> tuple[Tensor, ScanState]:
    """`scan_attention` by a backend, or item by item."""
    if way in BACKENDS:
        return scan_attention(scores, values, backend=way, **options)
    mask, log_decay = options.get("mask"), options.get("log_decay")
    batch, length, heads, width = values.shape
    state = options.get("initial_state") or ScanState.empty((batch, heads), width)
    outputs = [torch.zeros_like(values[:, :0])]
    for k in range(length):
        rate = None if log_decay is None else log_decay[:, k]
        if way == "step":
            is_real = None if mask is None else mask[:, k]
            output, state = step(state, scores[:, k], values[:, k], mask=is_real, log_decay=rate)
        else:
            is_real = None if mask is None else mask[:, k].unsqueeze(-1)
            state = update(state, scores[:, k], values[:, k], mask=is_real, log_decay=rate)
            output = read(state)
        outputs.append(output.to(values.dtype).unsqueeze(1))
    return torch.cat(outputs, dim=1), state


def observe(leaves: list[Tensor], outputs: Tensor, final: ScanState) -> list[Tensor]:
    """Results as users see them, and the gradients of a loss on all of them."""
    seen = [outputs, *visible(final)]
    loss = sum((part * torch.arange(1.0, part.numel() + 1).sin().view_as(part)).sum() for part in seen)
    return [*seen, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def without_masked_items(case) -> tuple[Tensor, ScanState]:
    """What the definition says of the real items alone; a masked place repeats the output before it."""
    mask, start = case.options["mask"], case.options["initial_state"]
    every_output, finals = [], []
    for row in range(len(mask)):
        before = ScanState(*(part[row : row + 1] for part in start))
        real, log_decay = mask[row], case.options["log_decay"]
        outputs, final = scan_attention(
            case.scores[row : row + 1, real],
            case.values[row : row + 1, real],
            log_decay=log_decay[row : row + 1, real],
            initial_state=before,
            backend="naive",
        )
        every_output.append(torch.cat([read(before), outputs[0]])[real.cumsum(0)])
        finals.append(final)
    return torch.stack(every_output), ScanState(*(torch.cat(parts) for parts in zip(*finals, strict=True)))


@every_way
@pytest.mark.parametrize("length", [1, 12, 70])
def test_a_masked_item_is_the_identity_whatever_stands_in_it(way, length):
    case = make_case(length, length=length, masked=True, decaying=True, carried=True)
    with torch.no_grad():
        case.scores[:, ::7] = -math.inf
    want = observe(case.leaves(), *without_masked_items(case))
    hidden = ~case.options["mask"]
    with torch.no_grad():
        case.scores[hidden], case.values[hidden], case.options["log_decay"][hidden] = math.nan, math.nan, 5.0
    got = observe(case.leaves(), *attend(way, case.scores, case.values, **case.options))
    assert_same(got, want, tolerance=1e-9)
    for gradient in got[3:6]:
        assert not gradient[hidden].any()


@every_way
def test_a_score_of_minus_infinity_is_an_item_without_weight_whose_decay_applies(way):
    scores = torch.tensor([0.0, -math.inf, 0.0]).double().view(1, 3, 1).requires_grad_()
    values = torch.tensor([1.0, math.nan, 4.0]).double().view(1, 3, 1, 1).requires_grad_()
    log_decay = torch.tensor([0.0, math.log(0.5), 0.0]).double().view(1, 3, 1).requires_grad_()
    outputs, final = attend(way, scores, values, log_decay=log_decay)
    torch.testing.assert_close(outputs.flatten(), torch.tensor([1.0, 1.0, (0.5 * 1 + 4) / 1.5]).double())
    torch.testing.assert_close((final.m + final.u.log()).item(), math.log(1.5))
    outputs.sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in (scores, values, log_decay))
    assert log_decay.grad[0, 1].item() < 0  # less of the 1 gives more of the 4
    assert scores.grad[0, 1].item() == values.grad[0, 1].item() == 0.0


@every_way
@pytest.mark.parametrize("decaying", [False, True])
def test_nothing_but_items_without_weight_outputs_zero(way, decaying):
    scores = torch.full((2, 3, 2), -math.inf, requires_grad=True)
    values = torch.full((2, 3, 2, 4), math.nan, requires_grad=True)
    options = {"log_decay": torch.full((2, 3, 2), -1.0)} if decaying else {}
    outputs, final = attend(way, scores, values, **options)
    assert not outputs.any()
    assert not final.u.any()
    outputs.sum().backward()
    assert not scores.grad.any()
    assert not values.grad.any()


@every_way
def test_a_decay_of_minus_infinity_is_a_reset(way):
    case = make_case(5, length=20, decaying=True, carried=True)
    case.options["log_decay"] = torch.zeros_like(case.scores)
    case.options["log_decay"][:, 8] = -math.inf
    case.options["log_decay"].requires_grad_()
    outputs, final = attend(way, case.scores, case.values, **case.options)
    alone, alone_final = scan_attention(case.scores[:, 8:], case.values[:, 8:], backend="naive")
    assert_same([outputs[:, 8:], *visible(final)], [alone, *visible(alone_final)], tolerance=1e-11)
    for gradient in torch.autograd.grad(outputs.square().sum(), case.leaves(), materialize_grads=True):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "triton"])
@pytest.mark.parametrize("variant", [{}, {"masked": True, "decaying": True, "carried": True}], ids=str)
@pytest.mark.parametrize("length", [0, 1, 12, 70])
def test_logs_are_those_of_the_sums_of_weights(backend, variant, length):
    """L_k = logaddexp(L_{k-1} + log_decay_k, s_k), in value and gradient."""
    case = make_case(length, length=length, **variant)
    mask, rates, start = (case.options.get(name) for name in ("mask", "log_decay", "initial_state"))
    total, expected = torch.full((2, 3), -math.inf, dtype=torch.float64), []
    if start is not None:
        total = torch.where(start.u == 0, -math.inf, start.m + torch.where(start.u == 0, 1.0, start.u).log())
    for k in range(length):
        is_real = torch.ones(2, 1) > 0 if mask is None else mask[:, k : k + 1]
        rate = torch.zeros(2, 3) if rates is None else rates[:, k]
        kept = torch.where(is_real & (rate == -math.inf), -math.inf, total + rate.clamp(min=-1e9))
        new = torch.where(kept == -math.inf, case.scores[:, k], _logaddexp(kept, case.scores[:, k]))
        total = torch.where(is_real, new, total)
        expected.append(total)
    expected = torch.stack(expected, dim=1) if expected else case.scores
    outputs, _, logs = scan_with_logs(case.scores, case.values, backend=backend, **case.options)
    torch.testing.assert_close(logs, expected, rtol=1e-9, atol=1e-9)
    assert_same([outputs], [scan_attention(case.scores, case.values, **case.options)[0]], tolerance=1e-9)
    if not length:
        return
    leaves = [leaf for leaf in case.leaves() if leaf is not case.values]
    weigh = torch.arange(1.0, logs.numel() + 1).sin().view_as(logs)
    got, want = (
        torch.autograd.grad(
            (part * weigh).masked_fill(part == -math.inf, 0.0).sum(), leaves, materialize_grads=True
        )
        for part in (logs, expected)
    )
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    return torch.logaddexp(torch.where(a == -math.inf, b, a), b)  # where a is -inf, what is not chosen


@every_way
@pytest.mark.parametrize("rate", [5.0, math.inf, 1e-30])
def test_a_decay_that_would_grow_is_refused(way, rate):
    log_decay = torch.zeros(2, 3, 1)
    log_decay[1, 2] = rate
    mask = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ShapeError, match="log_decay"):
        attend(way, torch.zeros(2, 3, 1), torch.ones(2, 3, 1, 1), log_decay=log_decay)
    with pytest.raises(ShapeError, match="log_decay"):
        attend(way, torch.zeros(2, 3, 1), torch.ones(2, 3, 1, 1), log_decay=log_decay, mask=mask)
    mask[1, 2] = False
    attend(way, torch.zeros(2, 3, 1), torch.ones(2, 3, 1, 1), log_decay=log_decay, mask=mask)


@every_way
@pytest.mark.parametrize("cut", [0, 1, 7, 12])
def test_a_sequence_may_be_split_anywhere_and_merged(way, cut):
    """Also at a masked item, a reset or an item without weight; a merge decays the earlier part."""
    case = make_case(cut, length=12, masked=True, decaying=True, carried=True)
    with torch.no_grad():
        case.scores[:, ::5] = -math.inf
    options = dict(case.options)
    start = options.pop("initial_state")
    whole, final = attend(way, case.scores, case.values, **case.options)
    first = {name: part[:, :cut] for name, part in options.items()}
    second = {name: part[:, cut:] for name, part in options.items()}
    left, state = attend(way, case.scores[:, :cut], case.values[:, :cut], initial_state=start, **first)
    right, end = attend(way, case.scores[:, cut:], case.values[:, cut:], initial_state=state, **second)
    assert_same([torch.cat([left, right], 1), *visible(end)], [whole, *visible(final)], tolerance=1e-11)
    _, alone = attend(way, case.scores[:, cut:], case.values[:, cut:], **second)
    rates = second["log_decay"].masked_fill(~second["mask"].unsqueeze(-1), 0.0).sum(1)
    assert_same(list(visible(combine(decay(state, rates), alone))), list(visible(final)), tolerance=1e-11)
