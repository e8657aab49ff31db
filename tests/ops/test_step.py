import pytest
import torch

from aaren.ops import ScanState, read, scan_attention, step, update
from support.scan_cases import make_case


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 1e4, -1e4])
def test_a_step_is_an_update(dtype: torch.dtype, scale: float, rng: torch.Generator) -> None:
    short = long = ScanState.empty((2, 3), 4, dtype=dtype)
    for _ in range(20):
        score = scale * torch.randn(2, 3, generator=rng)
        value = torch.randn(2, 3, 4, generator=rng)
        output, short = step(short, score, value)
        long = update(long, score, value)
        for a, b in zip(short, long, strict=True):
            torch.testing.assert_close(a, b)
        torch.testing.assert_close(output, read(long))


def test_gradients_equal_the_definitions(rng: torch.Generator) -> None:
    score, value, more = (
        torch.randn(2, 3, *shape, generator=rng, dtype=torch.float64, requires_grad=True)
        for shape in ((), (4,), (4,))
    )
    start = update(ScanState.empty((2, 3), 4), score * 2.0, more)
    short, _ = step(start, score, value)
    expected = read(update(start, score, value))
    inputs = [score, value, more]
    weights = torch.randn(2, 3, 4, generator=rng, dtype=torch.float64)
    found = torch.autograd.grad((short * weights).sum(), inputs, retain_graph=True)
    for a, b in zip(found, torch.autograd.grad((expected * weights).sum(), inputs), strict=True):
        torch.testing.assert_close(a, b)


def test_a_masked_stream_does_not_decay(rng: torch.Generator) -> None:
    _, state = step(ScanState.empty((2, 3), 4), torch.zeros(2, 3), torch.randn(2, 3, 4, generator=rng))
    mask, decay = torch.tensor([True, False]), torch.full((2, 3), -1.0)
    output, after = step(state, torch.zeros(2, 3), torch.ones(2, 3, 4), mask=mask, log_decay=decay)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(after, state, strict=True))
    assert torch.equal(output[1], read(state)[1])
    torch.testing.assert_close(after.u[0], torch.full((3,), 1 + 2.718281828**-1, dtype=torch.float64))


def test_state_does_not_grow() -> None:
    state = ScanState.empty((2, 3), 4)
    sizes = set()
    for k in range(200):
        _, state = step(state, torch.full((2, 3), float(k)), torch.ones(2, 3, 4))
        sizes.add(state.nbytes)
    assert len(sizes) == 1


def test_a_masked_stream_repeats_its_output_and_keeps_its_state() -> None:
    case = make_case(1, batch=2, length=6)
    _, before = scan_attention(case.scores[:, :5], case.values[:, :5])
    output, after = step(before, case.scores[:, 5], case.values[:, 5], mask=torch.tensor([True, False]))
    want, _ = scan_attention(case.scores, case.values)
    torch.testing.assert_close(output[0], want[0, 5])
    torch.testing.assert_close(output[1], want[1, 4])
    assert all(torch.equal(new[1], old[1]) for new, old in zip(after, before, strict=True))


def test_a_layer_step_keeps_the_sums_precise() -> None:
    state = ScanState.empty((1, 1), 2)
    output, state = step(state, torch.zeros(1, 1), torch.ones(1, 1, 2, dtype=torch.bfloat16))
    assert output.dtype == state.w.dtype == torch.float64


@pytest.mark.parametrize("score", [-745.0, -800.0, -1e30])
def test_a_state_of_zeros_is_empty(score: float) -> None:
    """The paper's start, m = 0: next to it an item of a very negative score would weigh nothing."""
    state = ScanState(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3, 4))
    output, after = step(state, torch.full((2, 3), score), torch.full((2, 3, 4), 5.0))
    assert torch.equal(output, torch.full((2, 3, 4), 5.0))
    assert (after.u == 1).all()
    assert (after.m == score).all()
