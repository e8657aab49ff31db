from collections.abc import Iterator

import pytest
import torch

from aaren.ops import ScanState, scan_attention
from aaren.ops.chunked import BLOCK_LENGTH, _parts


def test_rows_far_below_the_blocks_maximum_do_not_underflow():
    """With one maximum per block, the first rows here would be 0 / 0."""
    scores = torch.linspace(-5000, 5000, BLOCK_LENGTH).view(1, -1, 1)
    values = torch.arange(float(BLOCK_LENGTH)).view(1, -1, 1, 1)
    outputs, _ = scan_attention(scores, values, backend="chunked")
    torch.testing.assert_close(outputs, values)  # each new score dwarfs the ones before


def test_second_derivatives(rng):
    scores = torch.randn(1, 5, 1, generator=rng, dtype=torch.float64, requires_grad=True)
    values = torch.randn(1, 5, 1, 2, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda s, v: scan_attention(s, v, backend="chunked")[0], (scores, values)
    )


@pytest.mark.parametrize("decay", [0.0, 0.01, 5.0])
@pytest.mark.parametrize(
    ("offset", "spread", "level"), [(0.0, 3.0, 0.0), (-1e4, 3.0, 100.0), (0.0, 100.0, 0.0)]
)
def test_float32_is_exact_to_1e_6_wherever_digits_are_easily_lost(rng, decay, offset, spread, level):
    """Scores near -1e4 with decay added to them, values far from 0, one item that outweighs all."""
    length = 20_000
    scores = torch.randn(1, length, 1, generator=rng) * spread + offset
    values = torch.randn(1, length, 1, 4, generator=rng) + level
    log_decay = -torch.rand(1, length, 1, generator=rng) * decay
    log_decay[:, length // 2] = -torch.inf
    weights = torch.randn(values.shape, generator=rng)
    exact, found = (
        observe(scores.to(dtype), values.to(dtype), log_decay.to(dtype) if decay else None, weights.to(dtype))
        for dtype in (torch.float64, torch.float32)
    )
    for got, want in zip(found, exact, strict=True):
        assert (got.double() - want).abs().max() <= 1e-6 * want.abs().max().clamp(min=1.0)


def test_float64_scores_alone_ask_for_float64_inside_blocks(rng):
    scores, values = torch.randn(1, 500, 2, generator=rng), torch.randn(1, 500, 2, 3, generator=rng)
    exact, _ = scan_attention(scores.double(), values.double(), backend="naive")
    outputs, state = scan_attention(scores.double(), values, backend="chunked")
    assert torch.equal(outputs, exact.float())
    assert state.w.dtype == torch.float64


def test_carried_sums_of_float32_items_do_not_stop_growing():
    """16,777,216 + 1 is 16,777,216 in float32."""
    state = ScanState(*(torch.full(size, 2.0**24).double() for size in ((1, 1), (1, 1), (1, 1, 1))))
    state = state._replace(m=torch.zeros(1, 1).double())
    _, final = scan_attention(
        torch.zeros(1, 100, 1), torch.ones(1, 100, 1, 1), initial_state=state, backend="chunked"
    )
    assert final.u.item() == 2.0**24 + 100
    assert final.w.item() == 2.0**24 + 100


@pytest.fixture
def rounded_matmuls() -> Iterator[None]:
    """Let float32 matmuls be rounded to TF32, on processors and cards that can."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("rounded_matmuls")
def test_where_matmuls_may_be_rounded_the_scan_is_not(rng):
    scores, values = torch.randn(1, 200, 2, generator=rng), torch.randn(1, 200, 2, 3, generator=rng)
    weights = torch.randn(values.shape, generator=rng)
    exact = observe(scores.double(), values.double(), None, weights.double())
    for got, want in zip(observe(scores, values, None, weights), exact, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1.0, 3e38])
def test_parts_of_a_product_survive_rounding_to_bfloat16(rng, size):
    numbers = torch.rand(1000, generator=rng) * size
    parts = _parts(numbers)
    assert torch.equal(sum(part.double() for part in parts), numbers.double())
    assert all(torch.equal(part, part.bfloat16().float()) for part in parts)


def test_memory_is_linear_in_the_length():
    """What autograd keeps for the backward pass, per item."""
    kept = []
    for length in (1_024, 8_192):
        scores, values = torch.zeros(1, length, 1, requires_grad=True), torch.zeros(1, length, 1, 8)
        sizes: list[int] = []

        def note(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            scan_attention(scores, values, backend="chunked")
        kept.append(sum(sizes) / length)
    assert kept[1] <= 1.05 * kept[0]


def observe(
    scores: torch.Tensor, values: torch.Tensor, log_decay: torch.Tensor | None, weights: torch.Tensor
) -> list[torch.Tensor]:
    leaves = [leaf.requires_grad_() for leaf in (scores, values, log_decay) if leaf is not None]
    outputs, _ = scan_attention(scores, values, log_decay=log_decay, backend="chunked")
    return [outputs, *torch.autograd.grad((outputs * weights).sum(), leaves)]


@pytest.mark.parametrize("decaying", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_compiles_into_one_graph(rng, decaying):
    """What `auto` is on a GPU; forward-mode differentiation would break the graph."""
    scores, values = torch.randn(1, 70, 2, generator=rng), torch.randn(1, 70, 2, 3, generator=rng)
    log_decay = -torch.rand(1, 70, 2, generator=rng) if decaying else None

    def run(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return scan_attention(scores, values, log_decay=log_decay, backend="chunked")[0]

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    leaves = [scores.requires_grad_(), values.requires_grad_()]
    for got, want in zip(
        *(
            [outputs, *torch.autograd.grad(outputs.square().sum(), leaves)]
            for outputs in (compiled(*leaves), run(*leaves))
        ),
        strict=True,
    ):
        torch.testing.assert_close(got, want)
