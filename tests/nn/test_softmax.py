import math

import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError, StateError
from aaren.nn import AarenAttention, KVCache, SoftmaxAttention
from aaren.nn import state as state_tree


def the_long_way(layer: SoftmaxAttention, x: Tensor) -> Tensor:
    split = (layer.num_heads, layer.head_width)
    query, keys, values = (p(x).unflatten(-1, split) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, keys) / math.sqrt(layer.head_width)
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return layer.out_proj(torch.einsum("bhqk,bkhd->bqhd", weights, values).flatten(-2))


def test_outputs_equal_the_definition() -> None:
    layer = SoftmaxAttention(12, 3, dtype=torch.float64)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0], the_long_way(layer, x))


def test_padding_asks_with_a_zero_input() -> None:
    layer = SoftmaxAttention(8, 2, dtype=torch.float64)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False, False], [False] * 5])
    y, state = layer(x, mask=mask)
    zeroed = torch.cat([x[:1, :3], torch.zeros(1, 1, 8, dtype=torch.float64)], dim=1)
    query = layer.q_proj(zeroed[:, 3:]).unflatten(-1, (2, 4))
    keys, values = (p(x[:1, :3]).unflatten(-1, (2, 4)) for p in (layer.k_proj, layer.v_proj))
    weights = torch.einsum("bqhd,bkhd->bhqk", query, keys).div(2.0).softmax(-1)
    expected = layer.out_proj(torch.einsum("bhqk,bkhd->bqhd", weights, values).flatten(-2))
    torch.testing.assert_close(y[:1, 3:], expected.expand(1, 2, 8))
    torch.testing.assert_close(y[1], layer.out_proj.bias.expand(5, 8))  # nothing seen: attention outputs 0
    assert state.ends.tolist() == [3, 0]
    # The same with a hole instead of right padding goes another way and must agree.
    y_hole, _ = layer(x, mask=torch.tensor([[False, True, True, True, False], [False] * 5]))
    y_right, _ = layer(x[:, 1:], mask=torch.tensor([[True, True, True, False], [False] * 4]))
    torch.testing.assert_close(y_hole[:, 1:], y_right)


@pytest.mark.parametrize("kind", [AarenAttention, SoftmaxAttention])
@pytest.mark.parametrize("dropout_on", ["weights", "output"])
def test_both_twins_are_regularised(kind: type[torch.nn.Module], dropout_on: str) -> None:
    layer = kind(16, 2, dropout=0.5, dropout_on=dropout_on)
    x = torch.randn(4, 6, 16)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize("masked", [False, True])
def test_steps_with_frozen_keys_and_values_can_be_differentiated(masked: bool) -> None:
    """The query's gradient needs the cache as it was, though nothing in the cache has a gradient itself."""
    layer = SoftmaxAttention(8, 2)
    layer.k_proj.requires_grad_(False)
    layer.v_proj.requires_grad_(False)
    x, state = torch.randn(2, 5, 8), layer.init_state(2)
    real = torch.ones(2, 5, dtype=torch.bool)
    real[1, 2] = not masked
    outputs = []
    for k in range(5):
        y, state = layer.step(x[:, k], state, mask=real[:, k])
        outputs.append(y)
    found = torch.autograd.grad(torch.stack(outputs, 1).square().sum(), layer.q_proj.weight)
    want = torch.autograd.grad(layer(x, mask=real)[0].square().sum(), layer.q_proj.weight)
    torch.testing.assert_close(found, want)


def test_streaming_on_leaves_what_autograd_needs_alone() -> None:
    layer = SoftmaxAttention(8, 2)
    x = torch.randn(2, 5, 8)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    y, state = layer(x[:, :3], mask=mask)
    y_next, branch = layer.step(x[:, 3], state, mask=torch.tensor([True, False]))
    with torch.no_grad():
        layer.step(x[:, 4], state)
        layer.step(x[:, 4], branch)
    (y.sum() + y_next.sum()).backward()
    assert layer.k_proj.weight.grad.any()


def test_training_on_nothing() -> None:
    layer = SoftmaxAttention(8, 2, dropout=0.5)
    for shape in ((2, 0, 8), (0, 3, 8)):
        y, _ = layer(torch.randn(shape))
        y.sum().backward()
        assert y.shape == shape


def test_bad_input() -> None:
    layer = SoftmaxAttention(8, 2)
    with pytest.raises(ConfigError, match="mixer='softmax' takes no log_decay"):
        layer(torch.randn(1, 2, 8), log_decay=torch.zeros(1, 2, 2))
    with pytest.raises(StateError, match=r"a cache of 3 streams, 2 heads of width 4; got 2, 2 and 4"):
        layer.step(torch.randn(3, 8), layer.init_state(2))
    with pytest.raises(StateError, match="needs a state of kind KVCache; got ScanState"):
        layer.step(torch.randn(3, 8), AarenAttention(8, 2).init_state(3))


def test_reset_parameters_draws_anew() -> None:
    layer = SoftmaxAttention(8, 2)
    before = layer.k_proj.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.k_proj.weight)


def items(num_items: int, batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 3, num_items, 4), torch.randn(batch, 3, num_items, 4)


def filled(cache: KVCache) -> torch.Tensor:
    return cache.keys[:, :, : cache.length]


def test_appending_doubles_and_otherwise_writes_in_place() -> None:
    cache = KVCache.of(*items(0))
    capacities, copies, last = [], 0, None
    added = []
    for _ in range(100):
        keys, values = items(1)
        added.append(keys)
        cache = cache.reserve(1).append(keys, values)
        copies += cache.keys.data_ptr() != last
        last = cache.keys.data_ptr()
        capacities.append(cache.keys.shape[2])
    assert sorted(set(capacities)) == [16, 32, 64, 128]
    assert copies == 4
    assert torch.equal(filled(cache), torch.cat(added, dim=2))
    assert cache.nbytes == 2 * 2 * 3 * 128 * 4 * 4


def test_only_the_newest_branch_writes_in_place() -> None:
    root = KVCache.of(*items(0)).reserve(1).append(*items(1))
    before = filled(root).clone()
    left = root.reserve(1).append(*items(1))
    assert left.keys.data_ptr() == root.keys.data_ptr()
    left_before = filled(left).clone()
    right = root.reserve(1).append(*items(1))
    assert right.keys.data_ptr() != root.keys.data_ptr()
    further = left.reserve(1).append(*items(1))
    assert further.keys.data_ptr() == left.keys.data_ptr()
    assert torch.equal(filled(root), before)
    assert torch.equal(filled(left), left_before)
    assert torch.equal(filled(right)[:, :, :1], before)


def test_streams_of_different_lengths() -> None:
    cache = KVCache.of(*items(0))
    keys, values = items(2)
    cache = cache.reserve(2).append(keys, values, torch.tensor([2, 1]))
    assert (cache.length, cache.ends.tolist()) == (2, [2, 1])
    more, values = items(1)
    cache = cache.reserve(1).append(more, values, torch.tensor([0, 1]))
    assert (cache.length, cache.lengths) == (2, None)  # equal again: the fast way is open again
    assert torch.equal(cache.keys[1, :, :2], torch.stack([keys[1, :, 0], more[1, :, 0]], dim=1))
    assert torch.equal(cache.keys[0, :, :2], keys[0])


def test_detached_caches_share_memory_and_clones_do_not() -> None:
    cache = KVCache.of(*items(0)).reserve(1).append(*items(1))
    assert state_tree.map_tensors(torch.Tensor.detach, cache).keys.data_ptr() == cache.keys.data_ptr()
    cloned = state_tree.map_tensors(torch.Tensor.clone, cache)
    cloned.reserve(1).append(*items(1))
    gone_on = cache.reserve(1).append(*items(1))
    assert gone_on.keys.data_ptr() == cache.keys.data_ptr()  # the clone's write was not ours


def test_a_detached_cache_still_branches_safely() -> None:
    cache = KVCache.of(*items(0)).reserve(1).append(*items(1))
    ahead = cache.reserve(1).append(*items(1))
    before = filled(ahead).clone()
    state_tree.map_tensors(torch.Tensor.detach, cache).reserve(1).append(*items(1))
    assert torch.equal(filled(ahead), before)


def test_a_cache_made_in_inference_mode_goes_on_outside() -> None:
    layer, x = SoftmaxAttention(8, 2), torch.randn(2, 3, 8)
    with torch.inference_mode():
        _, state = layer.step(x[:, 0], layer.init_state(2))
    with torch.no_grad():
        _, state = layer.step(x[:, 1], state)
        y, _ = layer.step(x[:, 2], state)
        torch.testing.assert_close(y, layer(x)[0][:, 2])


def test_unfilled_slots_never_turn_outputs_into_nan() -> None:
    torch.use_deterministic_algorithms(True)  # fills torch.empty with NaN
    try:
        layer, mask = SoftmaxAttention(8, 2), torch.tensor([True, False])
        state = layer.init_state(2)
        with torch.no_grad():
            for _ in range(20):
                y, state = layer.step(torch.randn(2, 8), state, mask=mask)
                assert y.isfinite().all()
    finally:
        torch.use_deterministic_algorithms(False)


@torch.no_grad()
def test_streams_that_begin_again_do_not_make_the_cache_grow() -> None:
    layer = SoftmaxAttention(8, 2)
    state = layer.init_state(3)
    for step in range(400):
        if step % 20 == 0:
            state = state.reset(torch.tensor([True, step % 40 == 0, True]))
        _, state = layer.step(torch.randn(3, 8), state)
    assert state.keys.shape[2] <= 2 * 40
