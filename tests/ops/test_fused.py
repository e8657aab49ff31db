"""The torch operators around the CPU kernel: autograd, compile, export, and the promises about threads."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from aaren.ops import ScanState, read, scan_attention
from support.scan_cases import assert_same, make_case

VARIANTS = [
    {},
    {"masked": True},
    {"decaying": True},
    {"carried": True},
    {"masked": True, "decaying": True, "carried": True},
]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_first_and_second_derivatives(variant):
    case = make_case(1, length=6, heads=2, width=2, **variant)
    if "initial_state" in case.options:  # finite differences cannot cross the edge of an empty state
        state = case.options["initial_state"]
        full = [part.detach().clone() for part in state]
        full[0][0], full[1][0] = 0.5, 1.0
        case.options["initial_state"] = ScanState(*(part.requires_grad_() for part in full))
    if "log_decay" in case.options:  # nor a reset
        finite = case.options["log_decay"].detach().clamp(-3.0, -0.1)
        case.options["log_decay"] = finite.requires_grad_()

    def function(*leaves: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        names = ["scores", "values", *(["log_decay"] if "log_decay" in case.options else [])]
        given = dict(zip(names, leaves, strict=False))
        options = {**case.options, **{k: v for k, v in given.items() if k == "log_decay"}}
        if "initial_state" in options:
            options["initial_state"] = ScanState(*leaves[len(names) :])
        outputs, final = scan_attention(given["scores"], given["values"], backend="fused", **options)
        total = torch.where(final.u == 0, 0.0, final.m + torch.where(final.u == 0, 1.0, final.u).log())
        return outputs, total, read(final)

    assert torch.autograd.gradcheck(function, case.leaves())
    assert torch.autograd.gradgradcheck(function, case.leaves(), fast_mode=True)


def operator_arguments(variant: dict[str, bool]) -> tuple[Tensor | None, ...]:
    case = make_case(2, length=9, **variant)
    state = case.options.get("initial_state") or ScanState.empty((2, 3), 5)
    options = [case.options.get(name) for name in ("mask", "log_decay")]
    return (case.scores, case.values, *options, *state)


@pytest.mark.slow
@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[-1]], ids=str)
@pytest.mark.parametrize("wants_logs", [False, True])
def test_forward_operator_obeys_torch_library(variant, wants_logs):
    torch.library.opcheck(
        torch.ops.aaren.prefix_attention.default, (*operator_arguments(variant), "fused", wants_logs)
    )


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[-1]], ids=str)
def test_backward_operator_obeys_torch_library(variant):
    forward = [x if x is None else x.detach() for x in operator_arguments(variant)]
    outputs, _, final_u, final_w, gates, forgets, logs = torch.ops.aaren.prefix_attention(
        *forward, "fused", True
    )
    grads = tuple(torch.ones_like(part) for part in (outputs, final_u, final_w, logs))
    saved = (outputs, gates, forgets, final_u, "fused")
    for given in (grads, (grads[0], None, None, None)):
        torch.library.opcheck(torch.ops.aaren.prefix_attention_backward.default, (*given, *forward, *saved))


class Scan(nn.Module):
    def forward(self, scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        return scan_attention(scores, values, mask=mask)[0]


def check_compiled(backend: str) -> None:
    case = make_case(3, length=20, masked=True, dtype=torch.float32)
    module = Scan()
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    want = module(case.scores, case.values, case.options["mask"])
    got = compiled(case.scores, case.values, case.options["mask"])
    weights = torch.randn_like(want)
    assert_same(
        [got, *torch.autograd.grad((got * weights).sum(), case.leaves())],
        [want, *torch.autograd.grad((want * weights).sum(), case.leaves())],
        tolerance=1e-6,
    )


def test_compiles_to_one_graph():
    check_compiled("aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inductor's own import
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_compiles_with_inductor():
    torch.use_deterministic_algorithms(False)
    check_compiled("inductor")


def test_exports():
    case = make_case(4, length=20, masked=True, dtype=torch.float32)
    inputs = (case.scores.detach(), case.values.detach(), case.options["mask"])
    exported = torch.export.export(Scan(), inputs)
    torch.testing.assert_close(exported.module()(*inputs), Scan()(*inputs))


@pytest.mark.parametrize(
    "shape", [{"batch": 4, "length": 900, "heads": 4}, {"batch": 1, "length": 3001, "heads": 3}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("two_threads")
def test_any_number_of_threads_gives_the_same_bits(shape, dtype):
    case = make_case(5, width=4, masked=True, decaying=True, carried=True, dtype=dtype, **shape)
    two = case.observe("fused")
    torch.set_num_threads(1)
    for a, b in zip(two, case.observe("fused"), strict=True):
        assert torch.equal(a, b)


@pytest.mark.usefixtures("two_threads")
def test_concurrent_calls_do_not_disturb_each_other():
    cases = [make_case(seed, batch=4, length=500, heads=4, width=16) for seed in range(8)]
    want = [case.observe("fused") for case in cases]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda case: case.observe("fused"), cases * 4))
    for index, result in enumerate(got):
        assert all(torch.equal(a, b) for a, b in zip(result, want[index % 8], strict=True))


FORK = """
import os, sys, torch
from aaren.ops import scan_attention
torch.set_num_threads(2)
scores, values = torch.randn(4, 900, 4), torch.randn(4, 900, 4, 16)
want, _ = scan_attention(scores, values)
child = os.fork()
if child == 0:
    got, _ = scan_attention(scores, values)
    os._exit(0 if torch.equal(got, want) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_computes_the_same():
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=120)


def test_modes_see_the_operators():
    class Names(TorchDispatchMode):
        seen: ClassVar[list[str]] = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(function.name())
            return function(*args, **(kwargs or {}))

    with Names():
        scan_attention(torch.zeros(1, 2, 1), torch.ones(1, 2, 1, 3))
    assert "aaren::prefix_attention" in Names.seen


EXP_CASES = [(torch.float64, 3e-15), (torch.float32, 1e-6)]


@pytest.mark.parametrize(("dtype", "bound"), EXP_CASES)
def test_weights_of_two_items_are_exponentials(dtype, bound, rng):
    """The second output of (0, x) with values (0, 1) is 1 / (1 + exp(-x)): far and near, 0 and NaN."""
    x = torch.cat([-700.0 * torch.rand(20_000, generator=rng, dtype=torch.float64), torch.zeros(1)])
    x = torch.cat([x, torch.tensor([-3e38, -torch.inf, torch.nan])]).to(dtype)
    scores = torch.stack([torch.zeros_like(x), x], 1).unsqueeze(-1)
    values = torch.tensor([0.0, 1.0], dtype=dtype).view(1, 2, 1, 1).expand(len(x), 2, 1, 1)
    outputs, _ = scan_attention(scores, values, backend="fused")
    found = outputs[:, 1, 0, 0].double()
    truth = torch.sigmoid(x.double())
    is_normal = truth > torch.finfo(dtype).tiny
    assert ((found - truth).abs() <= bound * truth)[is_normal].all()
    assert found[-4] == 0.5
    assert found[-3] == found[-2] == 0.0
    assert found[-1].isnan()


def test_without_the_kernel_auto_is_chunked_and_one_line_says_how_to_get_it():
    code = """
import torch
from aaren.errors import MissingDependencyError
from aaren.nn.dropout import attend_with_dropout, drop
from aaren.ops import scan_attention
scores, values = torch.zeros(1, 3, 1), torch.ones(1, 3, 1, 2)
for _ in range(2):
    outputs, _ = scan_attention(scores, values)
assert torch.equal(outputs, values)
assert torch.equal(torch.compile(scan_attention, backend="eager")(scores, values)[0], values)
assert sorted(set(drop(torch.ones(1000), 0.5).tolist())) == [0.0, 2.0]
assert attend_with_dropout(*torch.ones(3, 1, 2, 5, 4), 0.5).isfinite().all()
try:
    scan_attention(scores, values, backend="fused")
except MissingDependencyError as error:
    print(error)
"""
    environment = {**os.environ, "AAREN_CPU_ISA": "none"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", code],  # torch's about Python 3.13.0
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the CPU kernel is not available" in done.stdout
    assert "backend='chunked'" in done.stdout
    assert done.stderr.count("aaren: without the CPU kernel") == 1
    assert len(done.stderr.splitlines()) == 1


def test_noncontiguous_and_expanded_inputs(rng):
    scores = torch.randn(3, 7, 2, generator=rng).permute(1, 0, 2)  # (b, t, h) = (7, 3, 2)
    values = torch.randn(1, 3, 1, 4, generator=rng).expand(7, 3, 2, 4)
    got, _ = scan_attention(scores, values)
    want, _ = scan_attention(scores.contiguous(), values.contiguous(), backend="naive")
    torch.testing.assert_close(got, want)


def test_gradients_of_permuted_states_equal_the_definition(rng):
    """The initial state, and what comes back through the final one, may lie in memory in any order."""
    scores = torch.randn(2, 3, 2, generator=rng, dtype=torch.float64, requires_grad=True)
    values = torch.randn(2, 3, 2, 4, generator=rng, dtype=torch.float64)
    log_decay = torch.full((2, 3, 2), -0.1, dtype=torch.float64, requires_grad=True)
    w = torch.randn(2, 4, 2, generator=rng, dtype=torch.float64).transpose(1, 2)
    state = ScanState(torch.zeros(2, 2).double(), torch.ones(2, 2).double(), w)
    found = []
    for backend in ("fused", "naive"):
        _, final = scan_attention(scores, values, log_decay=log_decay, initial_state=state, backend=backend)
        means = (final.w / final.u.unsqueeze(-1)).transpose(1, 2).flatten(1)
        found.append(torch.autograd.grad((means * torch.arange(8.0)).sum(), (scores, log_decay)))
    assert_same(list(found[0]), list(found[1]), tolerance=1e-12)


def test_third_derivatives_equal_those_of_plain_torch(rng):
    scores = torch.randn(1, 5, 2, generator=rng, dtype=torch.float64, requires_grad=True)
    values = torch.randn(1, 5, 2, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    found = []
    for backend in ("fused", "chunked"):
        outputs, _ = scan_attention(scores, values, backend=backend)
        total = outputs.pow(2).sum()
        for _ in range(2):
            total = torch.autograd.grad(total, scores, create_graph=True)[0].pow(2).sum()
        found.append(torch.autograd.grad(total, (scores, values)))
    assert_same(list(found[0]), list(found[1]), tolerance=1e-9)
