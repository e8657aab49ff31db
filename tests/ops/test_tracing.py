"""The operators where tensors are not just numbers: fakes, traces, dispatch modes, no memory at all."""

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.fx.experimental.proxy_tensor import make_fx

from aaren.ops import ScanState, attend, combine, decay, scan_attention, step, update
from support.scan_cases import make_case


def arguments(seed: int) -> tuple[Tensor, ...]:
    case = make_case(seed, length=9, masked=True, decaying=True, carried=True)
    options = case.options
    tensors = (case.scores, case.values, options["mask"], options["log_decay"], *options["initial_state"])
    return tuple(tensor.detach() for tensor in tensors)


def scan(backend: str, *tensors: Tensor) -> Tensor:
    scores, values, mask, log_decay, *state = tensors
    outputs, final = scan_attention(
        scores, values, mask=mask, log_decay=log_decay, initial_state=ScanState(*state), backend=backend
    )
    return torch.cat([part.flatten() for part in (outputs, *final)])


def all_of_them(*tensors: Tensor) -> Tensor:
    """Every function of `aaren.ops` but the scan, on the first item."""
    scores, values, mask, log_decay, *parts = tensors
    state = ScanState(*parts)
    item = (scores[:, 0], values[:, 0])
    output, stepped = step(state, *item, mask=mask[:, 0], log_decay=log_decay[:, 0])
    updated = update(stepped, *item, mask=mask[:, :1])
    attended, seen = attend(values, values, values, mask=mask)
    results = (output, attended, *combine(updated, decay(state, log_decay[:, 0])), *seen)
    return torch.cat([part.flatten() for part in results])


FUNCTIONS = {
    "operator": lambda *tensors: scan("fused", *tensors),
    "chunked": lambda *tensors: scan("chunked", *tensors),
    "recurrent": lambda *tensors: scan("recurrent", *tensors),
    "tree": lambda *tensors: scan("ladner_fischer", *tensors),
    "items": all_of_them,
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@every_function
@pytest.mark.parametrize("way", ["jit", "make_fx", "export"])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_trace_answers_other_numbers_as_the_function_does(function, way) -> None:
    if way == "jit":
        traced = torch.jit.trace(function, arguments(1), check_trace=False)
    elif way == "make_fx":
        traced = make_fx(function)(*arguments(1))
    else:
        module = torch.nn.Module()
        module.forward = function
        traced = torch.export.export(module, arguments(1)).module()
    for seed in (1, 2):
        torch.testing.assert_close(traced(*arguments(seed)), function(*arguments(seed)))


@every_function
def test_fakes_and_the_meta_device_give_shapes_and_watchers_change_nothing(function) -> None:
    want = function(*arguments(1))
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(tensor) for tensor in arguments(1)]
        fakes[0].requires_grad_()
        fake = function(*fakes)
        fake.sum().backward()
        assert fake.shape == want.shape
        assert fakes[0].grad.shape == fakes[0].shape
    assert function(*(tensor.to("meta") for tensor in arguments(1))).shape == want.shape
    tensors = arguments(1)
    tensors[0].requires_grad_()
    with MemTracker():
        got = function(*tensors)
        got.sum().backward()
    torch.testing.assert_close(got.detach(), want, rtol=0.0, atol=0.0)
    assert tensors[0].grad.isfinite().all()
