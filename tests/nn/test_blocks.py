import struct
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from aaren.errors import StateError
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.nn.blocks import HEAD, Layout, state_from_bytes, state_to_bytes
from aaren.stream.session import Session


class ModelState(NamedTuple):
    """As a model has it: the encoder's state and more."""

    encoder: EncoderState
    position: Tensor
    is_seen: Tensor
    tail: Tensor


def build(**options: Any) -> Encoder:
    return Encoder(EncoderConfig(**{"width": 8, "num_heads": 2, "num_layers": 2, **options})).eval()


@pytest.fixture
def encoder() -> Encoder:
    return build()


@pytest.fixture
def state(encoder: Encoder) -> EncoderState:
    return encoder(torch.randn(3, 5, 8))[1].detach()


def test_round_trip_is_bit_for_bit(encoder: Encoder, state: EncoderState) -> None:
    name = encoder.fingerprint()
    blob = state_to_bytes(state, fingerprint=name)
    restored = state_from_bytes(blob, like=encoder.init_state(1), fingerprint=name)
    assert state_to_bytes(restored, fingerprint=name) == blob
    assert all(
        torch.equal(a, b)
        for x, y in zip(restored.layers, state.layers, strict=True)
        for a, b in zip(x, y, strict=True)
    )
    assert len(blob) == state.nbytes + 3 * HEAD.size


def test_blocks_of_streams_lie_end_to_end(encoder: Encoder, state: EncoderState) -> None:
    blocks = [state_to_bytes(state.select([stream])) for stream in range(3)]
    assert state_to_bytes(state) == b"".join(blocks)
    swapped = state_from_bytes(blocks[2] + blocks[0], like=encoder.init_state(1))
    assert state_to_bytes(swapped) == state_to_bytes(state.select([2, 0]))
    assert state_from_bytes(b"", like=state).layers[0].m.shape == (0, 2)


def test_a_models_own_state_is_saved_the_same_way(encoder: Encoder, state: EncoderState) -> None:
    flags = torch.tensor([True, False, True])
    whole = ModelState(state, torch.tensor([17, 3, 5]), flags, torch.randn(3, 2))
    like = ModelState(encoder.init_state(1), torch.tensor([0]), flags[:1], torch.zeros(1, 2))
    restored = state_from_bytes(state_to_bytes(whole), like=like)
    assert restored.position.tolist() == [17, 3, 5]
    assert restored.is_seen.tolist() == flags.tolist()
    assert torch.equal(restored.tail, whole.tail)
    assert isinstance(restored.encoder, EncoderState)


def test_float32_states_stay_float32_and_are_no_float64_ones(encoder: Encoder, state: EncoderState) -> None:
    small, like = state.to(dtype=torch.float32), encoder.init_state(1)
    restored = state_from_bytes(state_to_bytes(small), like=like.to(dtype=torch.float32))
    assert restored.layers[0].m.dtype == torch.float32
    with pytest.raises(StateError, match="other layers"):
        state_from_bytes(state_to_bytes(small), like=like)


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("bit", range(8))
def test_every_damaged_bit_is_noticed(bit: int, mixer: str) -> None:
    encoder = build(mixer=mixer)
    state = encoder(torch.randn(1, 5, 8))[1].detach()
    blob, like = state_to_bytes(state, fingerprint="abcdef"), encoder.init_state(1)
    for place in [*range(HEAD.size + 20), 200, len(blob) - 1]:
        damaged = bytearray(blob)
        damaged[place] ^= 1 << bit
        with pytest.raises(StateError):
            state_from_bytes(bytes(damaged), like=like, fingerprint="abcdef")


@pytest.mark.parametrize("version", [0, 1, 3])
def test_another_format_is_refused_by_name(version: int, encoder: Encoder, state: EncoderState) -> None:
    blob = bytearray(state_to_bytes(state))
    struct.pack_into("<I", blob, 4, version)
    with pytest.raises(StateError, match=f"format version {version}; this aaren reads 2"):
        state_from_bytes(bytes(blob), like=encoder.init_state(1))


@pytest.mark.parametrize("size", [7, HEAD.size - 1, HEAD.size, 300])
def test_truncated(size: int, encoder: Encoder, state: EncoderState) -> None:
    with pytest.raises(StateError, match=r"only the beginning of one|cut short"):
        state_from_bytes(state_to_bytes(state)[:size], like=encoder.init_state(1))


def test_damaged_and_foreign_bytes_are_named(encoder: Encoder, state: EncoderState) -> None:
    like, blob = encoder.init_state(1), state_to_bytes(state)
    for wrong in (b"x" * 200, blob + b"\0"):
        with pytest.raises(StateError, match="are not a saved state"):
            state_from_bytes(wrong, like=like)
    with pytest.raises(
        StateError, match=r"checksum does not match its bytes: it was damaged\. Use an older copy"
    ):
        state_from_bytes(blob[:-1] + bytes([blob[-1] ^ 1]), like=like)
    for nothing in (None, 3, "text"):
        with pytest.raises(StateError, match="a saved state is bytes"):
            state_from_bytes(nothing, like=like)


def test_a_state_of_another_model(encoder: Encoder, state: EncoderState) -> None:
    blob = state_to_bytes(state, fingerprint=encoder.fingerprint())
    other = Encoder(encoder.config)
    with pytest.raises(StateError, match=f"other weights.*{other.fingerprint()}.*Load the weights"):
        state_from_bytes(blob, like=other.init_state(1), fingerprint=other.fingerprint())
    for options in ({"num_heads": 4}, {"num_layers": 3}, {"mixer": "gru"}, {"mixer": "softmax"}):
        with pytest.raises(StateError, match="saved by a model with other layers"):
            state_from_bytes(blob, like=build(**options).init_state(1))


def test_a_growing_state_is_saved_by_its_items() -> None:
    encoder = build(mixer="softmax")
    mask = torch.arange(5) < torch.tensor([5, 2, 4]).unsqueeze(1)
    state = encoder(torch.randn(3, 5, 8), mask=mask)[1].detach()
    blob = state_to_bytes(state, fingerprint="it", count=5)
    restored = state_from_bytes(blob, like=encoder.init_state(1), fingerprint="it")
    item = torch.randn(3, 8)
    with torch.no_grad():
        wanted, found = encoder.step(item, state)[0], encoder.step(item, restored)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    assert state_to_bytes(restored, fingerprint="it", count=5) == blob
    with pytest.raises(StateError, match="other layers"):
        state_from_bytes(blob, like=build(mixer="softmax", num_heads=4).init_state(1))
    session = Session(encoder, batch_size=3)
    session.push(item)
    moved = Session(encoder, batch_size=3)
    moved.restore(session.to_bytes())
    assert moved.count == 1
    assert torch.equal(moved.push(item), session.push(item))


def test_only_tensors_are_states() -> None:
    for wrong in ("state", (torch.zeros(1), 7)):
        with pytest.raises(StateError, match="a state consists of tensors; got a"):
            state_to_bytes(wrong)


def test_parts_lie_where_their_numbers_are_aligned() -> None:
    state = (torch.tensor([True]), torch.ones(1, 3), torch.ones(1, dtype=torch.int64), torch.ones(1, 0))
    layout = Layout(state)
    assert [leaf.offset for leaf in layout.leaves] == [0, 4, 16, 24]
    assert layout.nbytes == 24
    for one, other in zip(state, layout.unpack(layout.pack(state)), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(StateError, match="a state keeps its size"):
        layout.pack((*state[:3], torch.ones(1, 2)))
