import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.ops import ScanState, attend, combine, read

METHODS = ["parallel", "recurrent", "block"]
every_method = pytest.mark.parametrize("method", METHODS)


def inputs(rng: torch.Generator, *, queries: int = 1, length: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64).requires_grad_()

    return normal(2, queries, 3, 4), normal(2, length, 3, 4), normal(2, length, 3, 5)


def sdpa(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """PyTorch's attention in our axes; it wants heads before time."""
    q, k, v = (x.transpose(1, 2) for x in (query, keys, values))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def assert_same_with_gradients(
    got: Tensor, want: Tensor, leaves: tuple[Tensor, ...], rng: torch.Generator
) -> None:
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    weights = torch.randn(want.shape, generator=rng, dtype=want.dtype)
    for a, b in zip(*(torch.autograd.grad((x * weights).sum(), leaves) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@every_method
def test_one_query_equals_scaled_dot_product_attention(method, rng):
    leaves = inputs(rng)
    output, _ = attend(*leaves, method=method, block_size=7)
    assert_same_with_gradients(output, sdpa(*leaves), leaves, rng)


@every_method
def test_transformer_self_attention_is_n_rnns(method, rng):
    """Token i is the query of the i-th RNN, which takes in tokens 1..i: causal self-attention."""
    leaves = inputs(rng, queries=20)
    causal = torch.ones(20, 20).tril().bool()
    output, _ = attend(*leaves, method=method, block_size=8, mask=causal.expand(2, 20, 20))
    assert_same_with_gradients(output, sdpa(*leaves, mask=causal), leaves, rng)


@every_method
def test_perceiver_latents_are_initial_hidden_states(method, rng):
    """A latent that attends to itself and to the context is an RNN whose first hidden state is the latent."""
    latents, keys, values = inputs(rng, queries=6)
    own_values = torch.randn(2, 6, 3, 5, generator=rng, dtype=torch.float64).requires_grad_()
    own_scores = (latents * latents).sum(-1) / 2  # scale 1 / sqrt(4)
    state = ScanState(own_scores, torch.ones_like(own_scores), own_values)
    output, _ = attend(latents, keys, values, method=method, initial_state=state)
    want = torch.stack(
        [
            sdpa(
                latents[:, i : i + 1],
                torch.cat([latents[:, i : i + 1], keys], 1),
                torch.cat([own_values[:, i : i + 1], values], 1),
            )[:, 0]
            for i in range(6)
        ],
        dim=1,
    )
    assert_same_with_gradients(output, want, (latents, keys, values, own_values), rng)


@every_method
@settings(max_examples=20, deadline=None)
@given(cut=st.integers(0, 20), block_size=st.integers(1, 25))
def test_tokens_can_be_added_later(method, cut, block_size):
    query, keys, values = inputs(torch.Generator().manual_seed(cut), queries=2)
    whole, state = attend(query, keys, values)
    _, first = attend(query, keys[:, :cut], values[:, :cut], method=method, block_size=block_size)
    output, final = attend(
        query, keys[:, cut:], values[:, cut:], method=method, block_size=block_size, initial_state=first
    )
    torch.testing.assert_close(output, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(final.m + final.u.log(), state.m + state.u.log(), rtol=1e-12, atol=1e-12)


@every_method
def test_masked_tokens_do_not_exist(method, rng):
    query, keys, values = inputs(rng, queries=2)
    mask = torch.rand(2, 20, generator=rng) > 0.5
    mask[1] = False
    dirty = torch.where(mask[..., None, None], values, torch.nan)
    output, state = attend(query, keys, dirty, method=method, mask=mask)
    want, _ = attend(query[:1], keys[:1, mask[0]], values[:1, mask[0]])
    torch.testing.assert_close(output[:1], want, rtol=1e-12, atol=1e-12)
    assert torch.equal(output[1], torch.zeros_like(output[1]))
    assert torch.equal(state.u[1], torch.zeros_like(state.u[1]))


@every_method
@pytest.mark.parametrize("where", ["key", "value"])
@pytest.mark.parametrize("is_per_query", [False, True])
def test_what_a_query_may_not_see_cannot_poison_it(method, where, is_per_query, rng):
    leaves = inputs(rng, queries=2)
    mask = torch.ones(2, 2, 20, dtype=torch.bool)
    mask[:, 0, 7], mask[:, 1, 7] = False, is_per_query  # whether the second query sees the bad token
    dirty = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    with torch.no_grad():
        dirty[1 if where == "key" else 2][:, 7, 1, 2] = torch.nan
    outputs = [
        attend(*some, method=method, block_size=3, mask=mask if is_per_query else mask[:, 0])[0]
        for some in (leaves, dirty)
    ]
    torch.testing.assert_close(outputs[1][:, 0], outputs[0][:, 0])
    assert outputs[1][:, 1].isnan().any() == is_per_query
    grads = [
        torch.autograd.grad(output[:, 0].sum(), some)
        for output, some in zip(outputs, (leaves, dirty), strict=True)
    ]
    torch.testing.assert_close(grads[1][0][:, 0], grads[0][0][:, 0])


def test_dtypes_may_differ(rng):
    query, keys, values = (x.detach() for x in inputs(rng))
    want, _ = attend(query, keys, values)
    output, _ = attend(query.float(), keys, values.half())
    assert output.dtype == torch.float16
    torch.testing.assert_close(output.double(), want, rtol=1e-2, atol=1e-2)


def test_the_papers_block_sums_count_the_border_twice(rng):
    query, keys, values = (x.detach() for x in inputs(rng))
    want, _ = attend(query, keys, values)
    _, first = attend(query, keys[:, :10], values[:, :10])
    _, second = attend(query, keys[:, 9:], values[:, 9:])  # appendix A as printed: the sum starts at j = i
    assert (read(combine(first, second)) - want).abs().max() > 1e-3


def test_half_precision_and_huge_scores(rng):
    query, keys, values = (x.detach().bfloat16() for x in inputs(rng))
    output, state = attend(query * 1e4, keys, values)
    assert output.dtype == torch.bfloat16
    assert output.isfinite().all()
    assert state.w.dtype == torch.float64


def test_scale_can_be_chosen(rng):
    query, keys, values = inputs(rng)
    output, _ = attend(query, keys, values, scale=0.0)
    torch.testing.assert_close(output[:, 0], values.mean(1))


def test_wrong_inputs_are_refused_with_their_cure(rng):
    query, keys, values = inputs(rng, queries=2)
    with pytest.raises(ShapeError, match=r"query must be \(b, q, h, d\); got \(2, 3, 4\).*unsqueeze"):
        attend(query[:, 0], keys, values)
    with pytest.raises(ShapeError, match=r"keys must be .* with the b, h, d of query"):
        attend(query, keys[..., :2], values)
    with pytest.raises(ShapeError, match=r"values must be .* with the .* of keys"):
        attend(query, keys, values[:, 1:])
    with pytest.raises(ShapeError, match=r"mask must be \(b, q, t\) = \(2, 2, 20\)"):
        attend(query, keys, values, mask=torch.ones(2, 20, 2, dtype=torch.bool))
    with pytest.raises(ShapeError, match="mask must be bool"):
        attend(query, keys, values, mask=torch.ones(2, 20))
    with pytest.raises(ShapeError, match=r"values must be floating point; got torch\.int64"):
        attend(query, keys, values.long())
    with pytest.raises(StateError, match="initial_state must have m, u of shape"):
        attend(query, keys, values, initial_state=ScanState.empty((2, 1, 3), 5))
    with pytest.raises(ConfigError, match="unknown method 'blocks'; did you mean 'block'"):
        attend(query, keys, values, method="blocks")
    with pytest.raises(ShapeError, match="block_size must be at least 1; got 0"):
        attend(query, keys, values, method="block", block_size=0)


@pytest.mark.parametrize("method", ["parallel", "recurrent", "block"])
def test_scores_are_not_rounded_under_autocast(method, rng):
    query, keys, values = inputs(rng, queries=3)
    query, keys, values = 20.0 * query.float(), keys.float(), values.float()
    expected, state = attend(query, keys, values, method=method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, same = attend(query, keys, values, method=method)
        many = torch.ones(keys.shape[0], 3, keys.shape[1], dtype=torch.bool)
        masked, _ = attend(query, keys, values, method=method, mask=many)
    assert torch.equal(found, expected)
    assert all(torch.equal(a, b) for a, b in zip(same, state, strict=True))
    torch.testing.assert_close(masked, expected)


@pytest.mark.parametrize("method", ["parallel", "recurrent", "block"])
def test_a_start_of_zeros_is_a_start(method, rng):
    query, keys, values = inputs(rng, queries=2)
    query, keys = torch.full_like(query, 100.0), -torch.full_like(keys, 100.0)
    expected, _ = attend(query, keys, values, method=method)
    start = ScanState(*(torch.zeros_like(part) for part in attend(query, keys, values)[1]))
    found, _ = attend(query, keys, values, method=method, initial_state=start)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("method", ["parallel", "recurrent", "block"])
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_an_infinite_value_is_read_as_such_by_those_who_see_it(method, bad, rng):
    query, keys, values = inputs(rng, queries=2)
    values = values.detach().clone()
    values[:, 3, 0, 0] = bad
    mask = torch.ones(keys.shape[0], 2, keys.shape[1], dtype=torch.bool)
    mask[:, 1, 3] = False
    found, _ = attend(query, keys, values, method=method, mask=mask)
    expected = torch.full_like(found[:, 0, 0, 0], bad)
    torch.testing.assert_close(found[:, 0, 0, 0], expected, equal_nan=True)
    assert found[:, 1].isfinite().all()
    assert found[:, 0, 0, 1:].isfinite().all()


@every_method
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["key", "value", "gradient"])
def test_a_poisoned_query_does_not_poison_gradients_of_what_it_does_not_see(method, bad, where, rng):
    leaves = inputs(rng, queries=2)
    mask = torch.ones(2, 2, 20, dtype=torch.bool)
    mask[:, 0, 7:10], mask[:, 1, 3:6] = False, False
    if where != "gradient":
        with torch.no_grad():
            leaves[1 if where == "key" else 2][:, 7, 1, 2] = bad  # the second query sees it
    output, _ = attend(*leaves, method=method, block_size=4, mask=mask)
    weights = torch.ones_like(output)
    if where == "gradient":
        weights[:, 1] = bad
    _, grad_keys, grad_values = torch.autograd.grad(output, leaves, weights)
    assert grad_keys[:, 3:6].isfinite().all()  # which the second query does not see
    assert grad_values[:, 3:6].isfinite().all()
    torch.testing.assert_close(output[:, 0], attend(*leaves, mask=mask)[0][:, 0])
