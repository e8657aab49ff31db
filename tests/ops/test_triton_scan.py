"""The Triton backend against the definition, on a GPU where there is one, else under Triton's interpreter.

Triton decides at its import whether it interprets, so a test that imports it first would decide for all.
Hence the backend runs in a process of its own: this file, run as a script, answers calls of its functions.
"""

import importlib.util
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aaren.errors import AarenError, MissingDependencyError, ShapeError
from aaren.ops import ScanState, scan_attention
from aaren.ops.state import as_token

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Case = dict[str, Tensor]
pytestmark = pytest.mark.gpu


# What runs on both sides.


def results(backend: str, case: Case, *, device: str = "cpu") -> Case:
    """Outputs, final super-tokens and all gradients of a loss that reads both."""
    case = leaves(case, device)
    outputs, final = scan_attention(**arguments(case), backend=backend)
    score, value = as_token(final)
    score = torch.where(score == -torch.inf, 0.0, score)  # an empty state has no score to differentiate
    loss = sum(weigh(part) for part in (outputs, score, value))
    inputs = {name: tensor for name, tensor in case.items() if tensor.requires_grad}
    grads = torch.autograd.grad(loss, list(inputs.values()), materialize_grads=True)
    found = {"outputs": outputs, "final score": score, "final value": value, "u": final.u, "w": final.w}
    found |= {f"gradient of {name}": grad for name, grad in zip(inputs, grads, strict=True)}
    return {name: tensor.detach().cpu() for name, tensor in found.items()}


def state_gradients(backend: str, case: Case, *, device: str = "cpu") -> Case:
    """Gradients of a loss that reads the final value alone."""
    case = leaves(case, device)
    value = as_token(scan_attention(**arguments(case), backend=backend)[1])[1]
    grads = torch.autograd.grad(weigh(value), [case["scores"], case["values"]])
    return {"scores": grads[0].cpu(), "values": grads[1].cpu()}


def second_derivatives(backend: str, case: Case, *, device: str = "cpu") -> Case:
    """Gradients of a function of the first gradients."""
    case = leaves(case, device)
    outputs, final = scan_attention(**arguments(case), backend=backend)
    inputs = [case["scores"], case["values"]]
    first = torch.autograd.grad(weigh(outputs) + weigh(as_token(final)[1]), inputs, create_graph=True)
    second = torch.autograd.grad(sum(weigh(grad.square()) for grad in first), inputs)
    return {"scores": second[0].cpu(), "values": second[1].cpu()}


def leaves(case: Case, device: str) -> Case:
    """Copies that collect gradients of their own."""
    copies = {name: tensor.detach().clone().to(device) for name, tensor in case.items()}
    return {name: tensor.requires_grad_(tensor.is_floating_point()) for name, tensor in copies.items()}


def arguments(case: Case) -> dict[str, Any]:
    state = {name: case[name] for name in "muw" if name in case}
    kwargs: dict[str, Any] = {name: tensor for name, tensor in case.items() if name not in state}
    return kwargs | ({"initial_state": ScanState(**state)} if state else {})


def weigh(tensor: Tensor) -> Tensor:
    """A sum in which every entry counts differently."""
    weights = torch.arange(tensor.numel(), dtype=torch.float64).sin().view(tensor.shape)
    return (tensor * weights.to(tensor.device)).sum()


# What runs on the other side only.


def check_operators(case: Case, *, device: str) -> None:
    case = leaves(case, device)
    inputs = (case["scores"], case["values"], case["mask"], case["log_decay"])
    torch.library.opcheck(
        torch.ops.aaren.prefix_attention.default, (*inputs, case["m"], case["u"], case["w"], "triton", False)
    )


def compile_for_cuda(kernel_name: str, dtype: str, *, device: str) -> str:  # noqa: ARG001
    """Compile a kernel down to machine code; needs no GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from aaren.ops.triton import kernels as triton_kernels

    kernel = getattr(triton_kernels, kernel_name)
    constants = {"is_masked": True, "is_decaying": True, "block_length": 16, "block_width": 32}
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    types = dict.fromkeys(kernel.arg_names, "*fp64")
    types |= dict.fromkeys(
        ("scores", "values", "log_decay", "outputs", "grad_outputs", "grad_values"), f"*{dtype}"
    )
    types |= {"mask": "*i1", "length": "i32", "heads": "i32", "width": "i32"}
    types |= dict.fromkeys(constants, "constexpr")
    signature = {name: types[name] for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]


class Worker:
    """A Python process that calls functions of this file."""

    def __init__(self, **environment: str) -> None:
        if importlib.util.find_spec("triton") is None:
            pytest.skip("triton is not installed: pip install 'aaren[triton]'")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error::RuntimeWarning", str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TRITON_INTERPRET": "0"} | environment,
        )

    def __call__(self, function: Callable[..., Any], *args: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        pickle.dump((function.__name__, args), self.process.stdin)
        self.process.stdin.flush()
        result, error = pickle.load(self.process.stdout)
        if error is not None:
            raise error
        return result

    def stop(self) -> None:
        self.process.communicate()  # closes its input, at which it ends


def serve() -> None:
    """Answer calls from standard input until it is closed."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # torch.empty is filled with NaN
    torch.set_num_threads(1)  # tensors are tiny
    while True:
        try:
            name, args = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (globals()[name](*args, device=DEVICE), None)
        except AarenError as error:
            answer = (None, error)
        except Exception:
            answer = (None, RuntimeError(traceback.format_exc()))
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.flush()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker(**({} if DEVICE == "cuda" else {"TRITON_INTERPRET": "1"}))
    yield worker
    worker.stop()


@pytest.fixture(scope="module")
def compiling_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("triton")))
    yield worker
    worker.stop()


def random_case(rng: torch.Generator, length: int, *, batch: int = 1, heads: int = 2, width: int = 5) -> Case:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    return {"scores": normal(batch, length, heads), "values": normal(batch, length, heads, width)}


def with_everything(case: Case, rng: torch.Generator) -> Case:
    """Add a mask, scores of -inf, decay with resets, and an initial state of which one stream is empty."""
    batch, length, heads, width = case["values"].shape
    decay = -torch.rand(batch, length, heads, generator=rng, dtype=torch.float64)
    decay[torch.rand(batch, length, heads, generator=rng) < 0.05] = -torch.inf
    m = torch.randn(batch, heads, generator=rng, dtype=torch.float64)
    u = torch.rand(batch, heads, generator=rng, dtype=torch.float64) + 0.5
    w = torch.randn(batch, heads, width, generator=rng, dtype=torch.float64)
    m[0, 0], u[0, 0], w[0, 0] = torch.finfo(torch.float64).min, 0.0, 0.0
    mask = torch.rand(batch, length, generator=rng) < 0.8
    scores = case["scores"].clone()
    scores[:, 4::9] = -torch.inf
    return case | {"scores": scores, "mask": mask, "log_decay": decay, "m": m, "u": u, "w": w}


def assert_equals_definition(worker: Worker, case: Case) -> None:
    """Compare all results but u and w by themselves, which depend on the choice of m."""
    want, got = results("naive", case), worker(results, "triton", case)
    # Both sides round score plus decay, and an error in an exponent is one of its weight.
    largest = max(case["scores"][case["scores"].isfinite()].abs().tolist(), default=0.0)
    tolerance = 1e-12 + 10 * largest * torch.finfo(torch.float64).eps
    for name in want.keys() - {"u", "w"}:
        torch.testing.assert_close(
            got[name], want[name], rtol=1e-11, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("length", [0, 1, 2, 63, 64, 65, 100])
def test_equals_the_definition(worker: Worker, rng: torch.Generator, length: int) -> None:
    plain = random_case(rng, length)
    assert_equals_definition(worker, plain)
    assert_equals_definition(worker, with_everything(plain, rng))


@pytest.mark.long
@pytest.mark.parametrize("width", [1, 16, 37])
def test_any_width(worker: Worker, rng: torch.Generator, width: int) -> None:
    assert_equals_definition(
        worker, with_everything(random_case(rng, 20, batch=2, heads=1, width=width), rng)
    )


@pytest.mark.parametrize("jump", [120.0, -120.0, 1e4, -1e4])
def test_jumping_scores(worker: Worker, rng: torch.Generator, jump: float) -> None:
    case = with_everything(random_case(rng, 40, heads=1), rng)
    case["scores"][:, 7::10] += jump
    case["scores"][:, 20:30] += 2 * jump
    assert_equals_definition(worker, case)


def test_a_decay_of_the_lowest_finite_number_forgets_but_leaves_later_decay_exact(
    worker: Worker, rng: torch.Generator
) -> None:
    case = with_everything(random_case(rng, 20), rng)
    case["log_decay"][:, [3, 9]] = torch.finfo(torch.float32).min
    assert_equals_definition(worker, case)


def test_no_item_at_all_gives_zeros_and_keeps_the_state(worker: Worker, rng: torch.Generator) -> None:
    case = with_everything(random_case(rng, 20), rng)
    case["log_decay"].zero_()
    case["mask"][:] = False
    got = worker(results, "triton", case)
    assert not got["outputs"][:, :, 0].any()  # this stream began empty
    assert torch.equal(got["u"], case["u"])
    assert torch.equal(got["w"], case["w"])
    for name in ("scores", "values"):
        assert not got[f"gradient of {name}"].any()


def test_what_stands_in_a_masked_item_has_no_effect(worker: Worker, rng: torch.Generator) -> None:
    case = with_everything(random_case(rng, 20), rng)
    poisoned = {name: tensor.clone() for name, tensor in case.items()}
    poisoned["scores"][~case["mask"]] = torch.nan
    poisoned["values"][~case["mask"]] = torch.nan
    want, got = worker(results, "triton", case), worker(results, "triton", poisoned)
    for name in want:
        assert torch.equal(got[name], want[name]), name


@pytest.mark.parametrize("where", ["scores", "values"])
def test_nan_poisons_its_own_stream_from_its_position_until_a_reset(
    worker: Worker, rng: torch.Generator, where: str
) -> None:
    case = random_case(rng, 50) | {"log_decay": torch.zeros(1, 50, 2, dtype=torch.float64)}
    case["log_decay"][:, 40] = -torch.inf
    want = results("naive", case)
    case[where][0, 20, 1] = torch.nan
    got = worker(results, "triton", case)
    is_clean = torch.ones(1, 50, 2, dtype=torch.bool)
    is_clean[:, 20:40, 1] = False
    torch.testing.assert_close(got["outputs"][is_clean], want["outputs"][is_clean])
    assert got["outputs"][~is_clean].isnan().all()
    # What comes after the reset, and the other stream, learn as if nothing had happened.
    is_clean[:, :20, 1] = False
    for name in ("gradient of scores", "gradient of values"):
        torch.testing.assert_close(got[name][is_clean], want[name][is_clean])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lower_precisions(worker: Worker, rng: torch.Generator, dtype: torch.dtype) -> None:
    case = {name: tensor.to(dtype) for name, tensor in random_case(rng, 40).items()}
    exact = results("naive", {name: tensor.double() for name, tensor in case.items()})
    got = worker(results, "triton", case)
    assert got["outputs"].dtype == dtype
    assert got["gradient of scores"].dtype == dtype
    assert got["u"].dtype == torch.float64
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(got["outputs"].double(), exact["outputs"], rtol=rounding, atol=rounding)
    for name in ("gradient of scores", "gradient of values"):
        # The loss weighs outputs that have been rounded to dtype: a few roundings of numbers of order 10.
        torch.testing.assert_close(got[name].double(), exact[name], rtol=4 * rounding, atol=4 * rounding)


def test_single_precision_keeps_large_scores_apart(worker: Worker, rng: torch.Generator) -> None:
    case = {name: tensor.float() for name, tensor in random_case(rng, 300, heads=1, width=4).items()}
    case["scores"] += 1e4
    exact = results("naive", {name: tensor.double() for name, tensor in case.items()})
    got = worker(results, "triton", case)
    for name in ("outputs", "gradient of scores", "gradient of values"):
        error = (got[name] - exact[name]).abs().max()
        assert error < 1e-6 * exact[name].abs().max(), name


def test_a_loss_of_the_final_state_alone(worker: Worker, rng: torch.Generator) -> None:
    case = with_everything(random_case(rng, 20), rng)
    want = state_gradients("naive", case)
    torch.testing.assert_close(worker(state_gradients, "triton", case), want, rtol=1e-11, atol=1e-12)


def test_second_derivatives(worker: Worker, rng: torch.Generator) -> None:
    case = with_everything(random_case(rng, 12), rng)
    want = second_derivatives("naive", case)
    torch.testing.assert_close(worker(second_derivatives, "triton", case), want, rtol=1e-9, atol=1e-10)


def test_operators_pass_torchs_own_checks(worker: Worker, rng: torch.Generator) -> None:
    worker(check_operators, with_everything(random_case(rng, 5, width=2), rng))


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("kernel", ["forward", "backward"])
def test_kernels_compile_for_cuda(compiling_worker: Worker, kernel: str, dtype: str) -> None:
    assert ".target sm_80" in compiling_worker(compile_for_cuda, kernel, dtype)


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a CUDA device, on which it runs")
def test_cpu_tensors_are_refused_with_the_cure(compiling_worker: Worker, rng: torch.Generator) -> None:
    with pytest.raises(
        ShapeError, match=r"needs tensors on a CUDA device; got cpu\. Use backend='fused' on a CPU"
    ):
        compiling_worker(results, "triton", random_case(rng, 2))


def test_missing_triton_names_the_extra(monkeypatch: pytest.MonkeyPatch, rng: torch.Generator) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingDependencyError, match=r"needs 'triton': pip install 'aaren\[triton\]'"):
        results("triton", random_case(rng, 2))


if __name__ == "__main__":
    serve()
