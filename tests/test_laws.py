"""Laws that every mixer obeys, alone and in a stack, in float64 so that rounding hides nothing."""

import pytest
import torch
from torch import Tensor

from aaren.errors import StateError
from aaren.nn import AarenAttention, Encoder, KVCache
from aaren.nn import state as state_tree
from aaren.nn.blocks import state_from_bytes, state_to_bytes
from support.mixers import (
    BATCH,
    EXACT,
    HEADS,
    LENGTH,
    MIXERS,
    WIDTH,
    assert_same_future,
    fold_steps,
    make_encoder,
    saved,
)


@pytest.fixture(params=MIXERS)
def mixer(request: pytest.FixtureRequest) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return MIXERS[request.param]().double().eval()


@pytest.fixture
def x(rng: torch.Generator) -> Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH, generator=rng, dtype=torch.float64)


@pytest.fixture
def holes() -> Tensor:
    """Masks with padding before, between and after real items, and one stream without any."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    mask[0, [0, 1, 5, LENGTH - 1]] = False
    mask[1] = False
    return mask


def test_folding_step_equals_forward(mixer: torch.nn.Module, x: Tensor) -> None:
    whole, final = mixer(x)
    stepped, last = fold_steps(mixer, x, mixer.init_state(BATCH))
    torch.testing.assert_close(stepped, whole, **EXACT)
    assert_same_future(mixer, x, final, last)


def test_folding_step_equals_forward_without_autograd(mixer: torch.nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        test_folding_step_equals_forward(mixer, x)


def test_folding_masked_step_equals_masked_forward(mixer: torch.nn.Module, x: Tensor, holes: Tensor) -> None:
    whole, final = mixer(x, mask=holes)
    with torch.no_grad():
        stepped, last = fold_steps(mixer, x, mixer.init_state(BATCH), holes)
    torch.testing.assert_close(stepped[holes], whole[holes], **EXACT)
    assert_same_future(mixer, x, final, last)


@pytest.mark.parametrize("cut", [1, 4, LENGTH - 1])
@pytest.mark.parametrize("has_grad", [True, False])
def test_any_split_with_carried_state_equals_the_whole(
    mixer: torch.nn.Module, x: Tensor, cut: int, has_grad: bool
) -> None:
    with torch.set_grad_enabled(has_grad):
        whole, final = mixer(x)
        first, state = mixer(x[:, :cut])
        second, state = mixer(x[:, cut:], state)
        torch.testing.assert_close(torch.cat([first, second], dim=1), whole, **EXACT)
        assert_same_future(mixer, x, final, state)


def test_a_masked_split_equals_the_masked_whole(mixer: torch.nn.Module, x: Tensor, holes: Tensor) -> None:
    whole, final = mixer(x, mask=holes)
    first, state = mixer(x[:, :5], mask=holes[:, :5])
    second, state = mixer(x[:, 5:], state, mask=holes[:, 5:])
    torch.testing.assert_close(torch.cat([first, second], dim=1)[holes], whole[holes], **EXACT)
    assert_same_future(mixer, x, final, state)


def test_causality(mixer: torch.nn.Module, x: Tensor) -> None:
    before, _ = mixer(x)
    changed = x.clone()
    changed[:, 6] += 1.0
    after, _ = mixer(changed)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0.0, atol=0.0)
    assert not torch.equal(after[:, 6], before[:, 6])


def test_batch_entries_are_independent(mixer: torch.nn.Module, x: Tensor) -> None:
    together, final = mixer(x)
    alone, state = mixer(x[1:2])
    torch.testing.assert_close(alone, together[1:2], **EXACT)
    assert_same_future(mixer, x[1:2], state, state_tree.select(final, [1]))


@pytest.mark.parametrize("has_grad", [True, False])
def test_a_stream_with_mask_false_keeps_its_state_bit_for_bit(
    mixer: torch.nn.Module, x: Tensor, has_grad: bool
) -> None:
    with torch.set_grad_enabled(has_grad):
        _, state = mixer(x)
        token = x[:, 0].clone()
        token[1] = torch.nan  # what stands in a masked item has no effect
        mask = torch.tensor([True, False, True])
        _, new = mixer.step(token, state, mask=mask)
        assert saved(state_tree.select(new, [1])) == saved(state_tree.select(state, [1]))
        _, expected = mixer.step(x[:, 0], state)
        assert_same_future(mixer, x[[0, 2]], *(state_tree.select(s, [0, 2]) for s in (new, expected)))
        _, untouched = mixer.step(token, state, mask=torch.zeros(BATCH, dtype=torch.bool))
        assert saved(untouched) == saved(state)


@pytest.mark.parametrize("num_padding", [1, 9])
def test_right_padding_changes_neither_outputs_nor_final_states(
    mixer: torch.nn.Module, x: Tensor, num_padding: int
) -> None:
    whole, final = mixer(x)
    padding = torch.full((BATCH, num_padding, WIDTH), 1e3, dtype=x.dtype)
    mask = torch.arange(LENGTH + num_padding).expand(BATCH, -1) < LENGTH
    padded, state = mixer(torch.cat([x, padding], dim=1), mask=mask)
    torch.testing.assert_close(padded[:, :LENGTH], whole, **EXACT)
    assert_same_future(mixer, x, final, state)


def test_left_padding_changes_nothing_either(mixer: torch.nn.Module, x: Tensor) -> None:
    whole, final = mixer(x)
    mask = torch.arange(LENGTH + 2).expand(BATCH, -1) >= 2
    padded, state = mixer(torch.cat([x[:, :2] * 1e3, x], dim=1), mask=mask)
    torch.testing.assert_close(padded[:, 2:], whole, **EXACT)
    assert_same_future(mixer, x, final, state)


def test_padding_may_hold_nan_even_for_gradients(mixer: torch.nn.Module, x: Tensor, holes: Tensor) -> None:
    x = x.masked_fill(~holes.unsqueeze(-1), torch.nan)
    outputs, _ = mixer(x, mask=holes)
    assert outputs[holes].isfinite().all()
    trained = [parameter for parameter in mixer.parameters() if parameter.requires_grad]
    if trained:
        outputs[holes].square().sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in trained)


@pytest.mark.parametrize("has_grad", [True, False])
def test_branching_from_one_state(mixer: torch.nn.Module, x: Tensor, has_grad: bool) -> None:
    with torch.set_grad_enabled(has_grad):
        _, root = fold_steps(mixer, x[:, :5], mixer.init_state(BATCH))
        left, left_state = mixer.step(x[:, 5], root)
        right, right_state = mixer.step(x[:, 6], root)
        left, left_state = mixer.step(x[:, 7], left_state)
        right, right_state = mixer.step(x[:, 8], right_state)
        torch.testing.assert_close(left, mixer(x[:, [0, 1, 2, 3, 4, 5, 7]])[0][:, -1], **EXACT)
        torch.testing.assert_close(right, mixer(x[:, [0, 1, 2, 3, 4, 6, 8]])[0][:, -1], **EXACT)
        third, _ = mixer(x[:, 9:], root)
        torch.testing.assert_close(third, mixer(x[:, [0, 1, 2, 3, 4, 9, 10]])[0][:, 5:], **EXACT)


def test_branching_of_masked_streams(mixer: torch.nn.Module, x: Tensor) -> None:
    one_of_each = torch.tensor([[True, False, True], [False, True, True]])
    with torch.no_grad():
        _, root = fold_steps(mixer, x[:, :5], mixer.init_state(BATCH))
        _, a = mixer.step(x[:, 5], root, mask=one_of_each[0])
        _, b = mixer.step(x[:, 6], root, mask=one_of_each[1])
        after_a, _ = mixer.step(x[:, 7], a)
        after_b, _ = mixer.step(x[:, 7], b)
        for stream, items in ((0, [5, 7]), (1, [7]), (2, [5, 7])):
            expected = mixer(x[stream : stream + 1, [0, 1, 2, 3, 4, *items]])[0][:, -1]
            torch.testing.assert_close(after_a[stream : stream + 1], expected, **EXACT)
        for stream, items in ((0, [7]), (1, [6, 7]), (2, [6, 7])):
            expected = mixer(x[stream : stream + 1, [0, 1, 2, 3, 4, *items]])[0][:, -1]
            torch.testing.assert_close(after_b[stream : stream + 1], expected, **EXACT)


def test_state_size_is_constant_for_all_but_the_cache(mixer: torch.nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        state = mixer.init_state(BATCH)
        sizes = []
        for k in range(200):
            _, state = mixer.step(x[:, k % LENGTH], state)
            sizes.append(state_tree.count_bytes(state))
    inner = state.layers[0] if isinstance(mixer, Encoder) and state.layers else state
    if not isinstance(inner, KVCache):
        assert len(set(sizes)) == 1
    else:
        assert sizes[-1] > sizes[0]


def test_a_saved_state_resumes_bit_for_bit(mixer: torch.nn.Module, x: Tensor, holes: Tensor) -> None:
    with torch.no_grad():
        for mask in (None, holes):
            _, state = mixer(x, mask=mask)
            restored = state_from_bytes(state_to_bytes(state), like=mixer.init_state(1))
            went_on, _ = mixer.step(x[:, 0], state)
            resumed, _ = mixer.step(x[:, 0], restored)
            assert torch.equal(went_on, resumed)
            assert saved(restored) == saved(state)


def test_states_are_joined_and_picked_apart(mixer: torch.nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        _, three = mixer(x)
        _, one = mixer(x[:1, :4])
        joined = state_tree.cat([three, one, mixer.init_state(1)])
        assert state_tree.batch_size(joined) == BATCH + 2
        assert state_tree.batch_size(mixer.init_state(0)) == 0
        assert_same_future(mixer, x, three, state_tree.select(joined, [0, 1, 2]))
        assert_same_future(mixer, x[:1], one, state_tree.select(joined, [3]))
        assert_same_future(mixer, x[:1], mixer.init_state(1), state_tree.select(joined, [4]))


def test_some_streams_begin_again(mixer: torch.nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        _, state = mixer(x)
        before = saved(state)
        begun = state_tree.reset(state, torch.tensor([True, False, True]), mixer.init_state(1))
        assert_same_future(mixer, x[[0, 2]], state_tree.select(begun, [0, 2]), mixer.init_state(2))
        assert_same_future(mixer, x[1:2], state_tree.select(begun, [1]), state_tree.select(state, [1]))
        mixer.step(x[:, 0], begun)
        assert saved(state) == before


def test_states_of_other_models_are_not_joined(x: Tensor) -> None:
    with pytest.raises(StateError, match="states of one model; got ScanState, GRUState"):
        state_tree.cat([MIXERS["aaren"]().init_state(1), MIXERS["gru"]().init_state(1)])
    with pytest.raises(StateError, match=r"parts \(1, 3\) of torch.float64, \(1, 1\)"):
        state_tree.cat([MIXERS["aaren"]().init_state(1), AarenAttention(WIDTH, 1).init_state(1)])
    with pytest.raises(StateError, match=r"at least one state"):
        state_tree.cat([])
    encoder = make_encoder("aaren").double().eval()
    _, state = encoder(x)
    assert type(state).cat([state, state]).batch_size == 2 * BATCH
    assert_same_future(encoder, x, state.reset(torch.ones(BATCH) > 0, encoder.init_state(1)), None)


def test_an_empty_sequence_changes_nothing(mixer: torch.nn.Module, x: Tensor) -> None:
    _, state = mixer(x)
    outputs, same = mixer(x[:, :0], state)
    assert outputs.shape == (BATCH, 0, WIDTH)
    assert_same_future(mixer, x, state, same)
    _, empty = mixer(x[:, :0])
    assert_same_future(mixer, x, empty, mixer.init_state(BATCH), None)


def test_gradients_reach_the_initial_state_and_every_weight(mixer: torch.nn.Module, x: Tensor) -> None:
    trained = {name: p for name, p in mixer.named_parameters() if p.requires_grad}
    if not trained:
        pytest.skip("a folded module is not trained")
    _, state = mixer(x[:, :4])
    leaves: list[Tensor] = []

    def as_leaf(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1]

    state = state_tree.map_tensors(as_leaf, state)
    outputs, _ = mixer(x[:, 4:], state)
    (outputs * torch.linspace(-1, 1, outputs.numel(), dtype=x.dtype).view_as(outputs)).sum().backward()
    assert all(leaf.grad is not None and leaf.grad.abs().max() > 0 for leaf in leaves)
    without = [name for name, p in trained.items() if p.grad is None or p.grad.abs().max() == 0]
    assert without == []


def test_gradients_through_a_carried_state_equal_those_of_the_whole(
    mixer: torch.nn.Module, x: Tensor
) -> None:
    trained = [p for p in mixer.parameters() if p.requires_grad]
    if not trained:
        pytest.skip("a folded module is not trained")
    weights = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)
    whole, _ = mixer(x)
    expected = torch.autograd.grad((whole * weights).sum(), trained)
    first, state = mixer(x[:, :4])
    second, state = mixer(x[:, 4:9], state)
    outputs = [first, second]
    for k in (9, 10):
        token, state = mixer.step(x[:, k], state)
        outputs.append(token.unsqueeze(1))
    found = torch.autograd.grad((torch.cat(outputs, dim=1) * weights).sum(), trained)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["aaren", "aaren stack"])
def test_the_key_bias_has_gradient_exactly_zero_from_an_empty_state(name: str, x: Tensor) -> None:
    torch.manual_seed(7)
    mixer = MIXERS[name]().double()
    outputs, _ = mixer(x)
    outputs.square().sum().backward()
    biases = [p for n, p in mixer.named_parameters() if n.endswith("k_proj.bias")]
    others = [p for n, p in mixer.named_parameters() if not n.endswith("k_proj.bias")]
    assert biases
    assert all(p.grad is not None and torch.equal(p.grad, torch.zeros_like(p)) for p in biases)
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in others)


def test_switching_to_the_folded_module_in_mid_stream_changes_nothing(x: Tensor) -> None:
    torch.manual_seed(7)
    for original in (AarenAttention(WIDTH, HEADS), make_encoder("aaren", decay="learned")):
        original = original.double().eval()
        folded = original.fold()
        whole, _ = original(x)
        first, state = original(x[:, :3])
        second, state = fold_steps(folded, x[:, 3:5], state)
        third, state = fold_steps(original, x[:, 5:8], state)
        fourth, state = folded(x[:, 8:], state)
        torch.testing.assert_close(torch.cat([first, second, third, fourth], dim=1), whole, **EXACT)
        assert sum(p.numel() for p in folded.parameters()) < sum(p.numel() for p in original.parameters())
