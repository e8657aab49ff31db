import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aaren.errors import ConfigError, ShapeError
from aaren.ops import ScanState, combine, decay, read, update
from aaren.ops.state import as_token, leaf

scores = st.floats(-1e4, 1e4) | st.sampled_from([-120.0, 0.0, 120.0])


def state_of(items: list[tuple[float, float]]) -> ScanState:
    state = ScanState.empty((1,), 1)
    for score, value in items:
        state = update(state, torch.tensor([score]).double(), torch.tensor([[value]]).double())
    return state


def assert_equal_states(a: ScanState, b: ScanState) -> None:
    for left, right in zip(as_token(a), as_token(b), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


items = st.lists(st.tuples(scores, st.floats(-5, 5)), max_size=4)


@given(items, items, items)
def test_combine_is_associative_and_commutative(a, b, c):
    x, y, z = state_of(a), state_of(b), state_of(c)
    assert_equal_states(combine(combine(x, y), z), combine(x, combine(y, z)))
    assert_equal_states(combine(x, y), combine(y, x))


@given(items)
def test_empty_state_is_the_identity_bit_for_bit(a):
    state, empty = state_of(a), ScanState.empty((1,), 1)
    for joined in (combine(state, empty), combine(empty, state)):
        assert all(torch.equal(x, y) for x, y in zip(joined, state, strict=True))


def test_combine_counts_items_of_overlapping_sets_twice():
    a, b = state_of([(0.0, 1.0)]), state_of([(0.0, 4.0)])
    assert read(combine(combine(a, a), b)).item() == 2.0  # (1 + 1 + 4) / 3: only disjoint sets make sense


def test_decay_is_a_factor_on_everything_seen():
    state = decay(state_of([(0.0, 1.0)]), torch.tensor([0.5]).log())
    state = update(state, torch.zeros(1), torch.tensor([[4.0]]))
    assert abs(read(state).item() - (0.5 * 1 + 4) / 1.5) < 1e-7


def test_infinite_decay_forgets_even_a_nan():
    state = decay(state_of([(0.0, float("nan"))]), torch.tensor([-torch.inf]))
    assert all(torch.equal(x, y) for x, y in zip(state, ScanState.empty((1,), 1), strict=True))


def test_the_papers_initial_maximum_of_zero_fails_where_ours_does_not():
    m = torch.zeros(1)
    u = w = torch.zeros(1)
    for score, value in [(-200.0, 1.0), (-210.0, 2.0)]:
        new_m = torch.maximum(m, torch.tensor([score]))
        u = u * torch.exp(m - new_m) + torch.exp(score - new_m)
        w = w * torch.exp(m - new_m) + torch.exp(score - new_m) * value
        m = new_m
    assert (w / u).isnan().all()
    assert abs(read(state_of([(-200.0, 1.0), (-210.0, 2.0)])).item() - 1.0000454) < 1e-6


def test_masked_items_and_minus_infinity_change_nothing_bit_for_bit():
    state = state_of([(3.0, 1.5), (2.0, -1.0)])
    nan = torch.full((1, 1), torch.nan)
    masked = update(state, torch.tensor([torch.nan]), nan, mask=torch.tensor([False]))
    minus_infinity = update(state, torch.tensor([-torch.inf]), nan)
    for other in (masked, minus_infinity):
        assert all(torch.equal(x, y) for x, y in zip(other, state, strict=True))


def test_float32_states_stay_float32_and_empty_ones_stay_empty():
    small = ScanState.empty((2,), 3, dtype=torch.float32)
    after = update(small, torch.tensor([1.0, -torch.inf]).double(), torch.ones(2, 3).double())
    assert after.w.dtype == torch.float32
    back = small.to(torch.float64)
    assert torch.equal(back.m, ScanState.empty((2,), 3).m)
    assert torch.equal(back.to(torch.float32).m, small.m)


def test_read_of_nothing_is_zero_with_zero_gradient():
    state = ScanState.empty((2,), 3)
    for part in state:
        part.requires_grad_()
    read(state).sum().backward()
    assert torch.equal(read(state), torch.zeros(2, 3).double())
    assert state.u.grad.isfinite().all()


def test_state_and_its_token_are_interchangeable():
    state = state_of([(1.0, 2.0), (3.0, -1.0), (0.5, 7.0)])
    score, value = as_token(state)
    assert_equal_states(
        combine(leaf(score, value), state_of([(2.0, 2.0)])), combine(state, state_of([(2.0, 2.0)]))
    )
    assert as_token(ScanState.empty((1,), 1))[0].item() == -torch.inf


def test_nbytes_counts_all_parts():
    assert ScanState.empty((4,), 128).nbytes == 8 * (4 + 4 + 512)


def test_items_of_other_shapes_are_refused_not_broadcast():
    state, score, value = ScanState.empty((1, 3), 4), torch.zeros(1, 3), torch.zeros(1, 3, 4)
    for bad in ({"score": torch.zeros(5, 3)}, {"value": torch.zeros(1, 3, 1)}, {"log_decay": torch.zeros(1)}):
        given = {"score": score, "value": value, **bad}
        with pytest.raises(ShapeError, match=r"score, value .* \(1, 3\), \(1, 3, 4\) .* as the state"):
            update(state, **given)
    with pytest.raises(ShapeError, match=r"mask must broadcast to \(1, 3\); got \(5, 1\)"):
        update(state, score, value, mask=torch.ones(5, 1, dtype=torch.bool))
    for shape in ((), (3,), (1, 1), (1, 3)):
        update(state, score, value, mask=torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("wrong", [torch.float32, torch.int64, torch.float64])
def test_a_mask_must_be_bool(wrong):
    state, score, value = ScanState.empty((1, 3), 4), torch.zeros(1, 3), torch.zeros(1, 3, 4)
    with pytest.raises(ShapeError, match=r"mask must be bool, True = real item; got .*mask\.bool\(\)"):
        update(state, score, value, mask=torch.ones(1, 3, dtype=wrong))


def test_a_masked_item_keeps_the_sign_of_a_zero():
    state = ScanState(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([[-0.0], [-0.0]]))
    item = torch.tensor([0.5, 0.5]), torch.tensor([[3.0], [3.0]])
    none = update(state, *item, mask=torch.tensor([False]))
    lost = update(state, torch.full((2,), -torch.inf), item[1])
    decayed = update(state, *item, mask=torch.tensor([False]), log_decay=torch.zeros(2))
    for after in (none, lost, decayed):
        assert all(torch.equal(x, y) for x, y in zip(after, state, strict=True))
        assert after.w.signbit().all()


@pytest.mark.parametrize("sizes", [((1, 3), (2, 3)), ((3,), (1, 3)), ((2, 1), (2, 3)), ((), (2,))])
def test_states_of_other_streams_are_not_broadcast(sizes):
    one, other = (ScanState.empty(size, 4) for size in sizes)
    with pytest.raises(ShapeError, match="states are combined stream by stream"):
        combine(one, other)
    with pytest.raises(ShapeError, match="states are combined stream by stream"):
        combine(ScanState.empty((2,), 4), ScanState.empty((2,), 1))


@pytest.mark.parametrize("m", [0.0, 5.0, 1e6, -torch.inf, torch.inf, torch.nan])
def test_an_empty_state_is_empty_whatever_its_maximum(m):
    empty = ScanState(torch.full((1,), m).double(), torch.zeros(1).double(), torch.zeros(1, 1).double())
    seen = state_of([(-2000.0, 3.0), (-2001.0, 1.0)])
    for joined in (combine(empty, seen), combine(seen, empty)):
        assert all(torch.equal(x, y) for x, y in zip(joined, seen, strict=True))
    after = update(empty, torch.tensor([-2000.0]).double(), torch.tensor([[3.0]]).double())
    assert read(after).item() == 3.0


def test_to_takes_what_a_tensors_to_takes():
    state = state_of([(1.0, 2.0)])
    for converted in (
        state.to(torch.float32),
        state.to(dtype=torch.float32),
        state.to("cpu", torch.float32),
        state.to(torch.device("cpu"), torch.float32),
        state.to(torch.float32, device="cpu"),
    ):
        assert {part.dtype for part in converted} == {torch.float32}
        assert read(converted).item() == 2.0
    for same in (state.to("cpu"), state.to(device="cpu"), state.to()):
        assert all(torch.equal(x, y) for x, y in zip(same, state, strict=True))
    assert state.to("meta").w.is_meta
    assert state.to("meta", torch.float32).m.dtype == torch.float32
    for wrong in (("cpu", "cpu"), (torch.float32, torch.float64), (None,), ([1],), (torch.int64,)):
        with pytest.raises(ConfigError, match="a state"):
            state.to(*wrong)
