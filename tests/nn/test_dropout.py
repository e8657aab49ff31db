import pytest
import torch
import torch.nn.functional as F

from aaren.nn.block import FeedForward
from aaren.nn.dropout import attend_with_dropout, drop, gelu_and_drop


@pytest.fixture(autouse=True)
def _own_generator() -> None:
    torch.manual_seed(11)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_share_and_the_mean_are_right(probability: float) -> None:
    dropped = drop(torch.ones(400, 500), probability)
    share = (dropped == 0).double().mean().item()
    assert share == pytest.approx(probability, abs=4 * (probability * (1 - probability) / 200_000) ** 0.5)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.03)


def test_neighbours_rows_and_calls_are_independent() -> None:
    first, second = (drop(torch.ones(1000, 1024), 0.5) == 0 for _ in range(2))
    bound = 4 * 0.5 / 1000  # of the mean of a million products of two signs
    signs = first.float() * 2 - 1
    for other in (first.roll(1, 1), first.roll(1, 0), first.roll(7, 1), first.roll(512, 1), second):
        assert abs((signs * (other.float() * 2 - 1)).mean().item()) < bound
    counts = first.sum(1).double()  # per row: binomial, variance n / 4
    assert counts.var().item() == pytest.approx(256.0, rel=0.2)


def test_the_gradient_passes_where_items_were_kept() -> None:
    x = torch.randn(50, 60, dtype=torch.float64, requires_grad=True)
    dropped = drop(x, 0.3)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(dropped == 0, 0.0, 1 / 0.7).double())
    first_order = torch.autograd.grad((drop(x, 0.3) ** 3).sum(), x, create_graph=True)[0]
    assert torch.autograd.grad(first_order.sum(), x)[0].any()


def test_the_generator_decides_and_threads_do_not() -> None:
    x = torch.randn(1 << 20)
    state = torch.get_rng_state()
    one = drop(x, 0.2)
    other = drop(x, 0.2)
    assert not torch.equal(one, other)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.set_rng_state(state)
        assert torch.equal(drop(x, 0.2), one)
    finally:
        torch.set_num_threads(threads)


def test_views_and_odd_cases() -> None:
    x = torch.randn(4, 6, 8).transpose(1, 2)
    dropped = drop(x, 0.5)
    assert dropped.shape == x.shape
    torch.testing.assert_close(dropped[dropped != 0], 2 * x[dropped != 0])
    assert drop(torch.empty(0, 3), 0.5).shape == (0, 3)
    assert drop(torch.tensor(3.0), 0.5).shape == ()
    assert drop(x, 0.0) is x
    assert drop(torch.ones(2, 64, dtype=torch.bfloat16), 0.5).dtype == torch.bfloat16


def test_another_default_device_does_not_matter() -> None:
    x, pairs = torch.ones(50, 60), torch.ones(3, 1, 2, 5, 4)
    with torch.device("meta"):
        dropped, attended = drop(x, 0.5), attend_with_dropout(*pairs, 0.5)
    assert sorted(set(dropped.flatten().tolist())) == [0.0, 2.0]
    assert attended.device.type == "cpu"


def test_gelu_is_that_of_double_precision() -> None:
    spread = torch.cat(
        [torch.linspace(-20, 20, 100_003), torch.randn(1000) * 1e-3, torch.tensor([-1e6, 1e6])]
    )
    x = spread.requires_grad_()
    truth_at = spread.detach().double().requires_grad_()
    found, truth = gelu_and_drop(x, 0.0), F.gelu(truth_at)
    error = (found - truth).abs()
    assert (error <= 2.5e-7 * truth_at.abs()).all()  # two roundings of the probability, which is at most 1
    slope, true_slope = (torch.autograd.grad(y.sum(), at)[0] for y, at in ((found, x), (truth, truth_at)))
    torch.testing.assert_close(slope.double(), true_slope, rtol=0.0, atol=5e-7)
    odd = torch.tensor([0.0, -0.0, torch.inf, torch.nan])
    # Not beside torch's own: with AVX-512 its GELU of infinity is NaN.
    torch.testing.assert_close(
        gelu_and_drop(odd, 0.0), torch.tensor([0.0, 0.0, torch.inf, torch.nan]), equal_nan=True
    )


@pytest.mark.parametrize("shape", [(), (1,), (3, 7), (33, 129), (1 << 10, 600)])
def test_gelu_and_dropout_in_one_are_both_in_turn(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    state = torch.get_rng_state()
    found = gelu_and_drop(x, 0.3)
    torch.set_rng_state(state)
    in_turn = drop(F.gelu(x), 0.3)
    torch.testing.assert_close(found, in_turn, rtol=0.0, atol=2e-6)
    given = torch.randn(shape)
    gradients = [torch.autograd.grad(y, x, given)[0] for y in (found, in_turn)]
    torch.testing.assert_close(*gradients, rtol=0.0, atol=4e-6)


def test_gelu_has_second_derivatives() -> None:
    x = torch.randn(40, 5, requires_grad=True)
    state = torch.get_rng_state()
    second = []
    for function in (gelu_and_drop, lambda y, probability: drop(F.gelu(y), probability)):
        torch.set_rng_state(state)
        first = torch.autograd.grad(function(x, 0.3).square().sum(), x, create_graph=True)[0]
        second.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*second, rtol=1e-5, atol=1e-5)


def test_a_feed_forward_part_trains_as_by_torchs_own_functions() -> None:
    layer = FeedForward(8, 32, inner_dropout=0.25)
    x = torch.randn(2, 5, 8)
    state = torch.get_rng_state()
    found = layer(x)
    torch.set_rng_state(state)
    torch.testing.assert_close(found, layer.narrow(drop(F.gelu(layer.widen(x)), 0.25)))
    torch.testing.assert_close(layer.eval()(x), layer.narrow(F.gelu(layer.widen(x))), rtol=0.0, atol=0.0)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, for forward mode
def test_function_transforms_see_through_it() -> None:
    x = torch.randn(50, 60)
    gradient = torch.func.grad(lambda y: drop(y, 0.5).sum())(x)
    assert sorted(set(gradient.flatten().tolist())) == [0.0, 2.0]
    _, tangent = torch.func.jvp(lambda y: drop(y, 0.5), (x,), (torch.ones_like(x),))
    assert sorted(set(tangent.flatten().tolist())) == [0.0, 2.0]


def test_attention_of_nothing_is_nothing() -> None:
    query = torch.randn(2, 3, 0, 4, requires_grad=True)
    found = attend_with_dropout(query, query, query, 0.5, is_causal=True)
    found.sum().backward()
    assert found.shape == (2, 3, 0, 4)


def test_it_compiles_as_torchs_own() -> None:
    compiled = torch.compile(lambda x: drop(x, 0.5), backend="eager", fullgraph=True)
    assert 0.3 < (compiled(torch.ones(1000)) == 0).double().mean() < 0.7


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_without_dropout_is_torchs_own(is_causal: bool) -> None:
    query, keys, values = torch.randn(3, 2, 4, 7, 8, dtype=torch.float64)
    torch.testing.assert_close(
        attend_with_dropout(query, keys, values, 0.0, is_causal=is_causal),
        F.scaled_dot_product_attention(query, keys, values, is_causal=is_causal),
    )


def test_attention_drops_weights_after_the_softmax() -> None:
    query, keys = torch.zeros(2, 1, 1, 1000, 8)
    ones = torch.ones(1, 1, 1000, 1)
    found = attend_with_dropout(query, keys, ones, 0.5)  # each output: mean of 1000 coins of 0 or 2
    assert found.mean().item() == pytest.approx(1.0, abs=0.01)
    assert found.std().item() == pytest.approx(1000**-0.5, rel=0.15)


@pytest.mark.parametrize(
    ("t", "s", "is_causal"), [(7, 7, True), (300, 300, True), (300, 150, False), (1, 9, False)]
)
def test_attention_has_the_gradients_of_its_definition(t: int, s: int, is_causal: bool) -> None:
    query, keys, values = (
        torch.randn(2, 3, steps, 4, dtype=torch.float64, requires_grad=True) for steps in (t, s, s)
    )
    state = torch.get_rng_state()
    found = attend_with_dropout(query, keys, values, 0.3, is_causal=is_causal)
    gradients = torch.autograd.grad(found.square().sum(), (query, keys, values))
    # With the unit matrix as values, the output is the dropped weights: which were kept, and by how much.
    torch.set_rng_state(state)
    unit = torch.eye(s, dtype=torch.float64).expand(2, 3, s, s)
    dropped = attend_with_dropout(query, keys, unit, 0.3, is_causal=is_causal).detach()
    scores = query @ keys.transpose(-2, -1) / 2.0
    if is_causal:
        scores = scores.masked_fill(torch.ones(t, s, dtype=torch.bool).triu(1), -torch.inf)
    weights = scores.softmax(-1) * (dropped != 0) / 0.7
    torch.testing.assert_close(dropped, weights.detach())
    expected = weights @ values
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        gradients, torch.autograd.grad(expected.square().sum(), (query, keys, values)), rtol=1e-7, atol=1e-9
    )


def test_attention_in_single_precision_is_that_in_double() -> None:
    double = [(6.0 * torch.randn(2, 2, 200, 8, dtype=torch.float64)).requires_grad_() for _ in range(3)]
    single = [part.detach().float().requires_grad_() for part in double]
    state = torch.get_rng_state()
    expected = attend_with_dropout(*double, 0.2, is_causal=True)
    torch.set_rng_state(state)
    found = attend_with_dropout(*single, 0.2, is_causal=True)
    torch.testing.assert_close(found.double(), expected, rtol=0.0, atol=3e-4)  # scores near 100, so 1e-5 each
    wanted = torch.autograd.grad(expected.sum(), double)
    for gradient, truth in zip(torch.autograd.grad(found.sum(), single), wanted, strict=True):
        assert (gradient.double() - truth).abs().max() < 1e-4 * truth.abs().max()


def test_attention_keeps_nan_in_its_own_rows_and_to_what_came_before() -> None:
    query, keys, values = torch.randn(3, 1, 2, 20, 4)
    keys[0, 0, 7] = torch.nan
    found = attend_with_dropout(query, keys, values, 0.1, is_causal=True)
    assert found[0, 1].isfinite().all()
    assert found[0, 0, :7].isfinite().all()
    assert found[0, 0, 7:].isnan().all()


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_has_the_same_bits_for_any_number_of_threads(threads: int) -> None:
    query, keys, values = torch.randn(3, 8, 4, 300, 8, generator=torch.Generator().manual_seed(3))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        torch.manual_seed(5)
        found = attend_with_dropout(query, keys, values, 0.1, is_causal=True)
    finally:
        torch.set_num_threads(before)
    torch.manual_seed(5)
    assert torch.equal(found, attend_with_dropout(query, keys, values, 0.1, is_causal=True))
