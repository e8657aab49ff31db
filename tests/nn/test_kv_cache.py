import torch

from aaren.nn import KVCache, SoftmaxAttention
from aaren.nn import state as state_tree


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
    assert cache.used_nbytes == 2 * 2 * 3 * 100 * 4 * 4 + 2 * 8


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


def test_a_window_drops_what_it_does_not_reach() -> None:
    cache = KVCache.of(*items(0), window=3)
    for _ in range(50):
        keys, values = items(1)
        cache = cache.reserve(1).append(keys, values)
        assert cache.keys.shape[2] <= 16
    assert torch.equal(cache.keys[:, :, cache.length - 1], keys[:, :, 0])
    assert cache.parts()["keys"].shape[2] == 3


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
