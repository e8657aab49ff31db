import struct
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from aaren.errors import StateError
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.nn.state import DIGEST_BYTES, HEAD, state_from_bytes, state_to_bytes

WHOLE_HEAD = HEAD.size + DIGEST_BYTES


class ModelState(NamedTuple):
    """As a model has it: the encoder's state and more."""

    encoder: EncoderState
    position: int
    tail: Tensor


@pytest.fixture
def encoder() -> Encoder:
    return Encoder(EncoderConfig(width=8, num_heads=2, num_layers=2)).eval()


@pytest.fixture
def state(encoder: Encoder) -> EncoderState:
    return encoder(torch.randn(3, 5, 8))[1].detach()


def test_round_trip_is_bit_for_bit(encoder: Encoder, state: EncoderState) -> None:
    blob = state.to_bytes(fingerprint=encoder.fingerprint())
    restored = EncoderState.from_bytes(blob, like=encoder.init_state(1), fingerprint=encoder.fingerprint())
    assert restored.to_bytes(fingerprint=encoder.fingerprint()) == blob
    assert all(
        torch.equal(a, b)
        for x, y in zip(restored.layers, state.layers, strict=True)
        for a, b in zip(x, y, strict=True)
    )
    assert len(blob) < state.nbytes + 1024


def test_a_models_own_state_is_saved_the_same_way(encoder: Encoder, state: EncoderState) -> None:
    whole = ModelState(state, 17, torch.randn(3, 2))
    like = ModelState(encoder.init_state(1), 0, torch.zeros(1, 2))
    restored = state_from_bytes(state_to_bytes(whole), like=like)
    assert restored.position == 17
    assert torch.equal(restored.tail, whole.tail)
    assert isinstance(restored.encoder, EncoderState)


def test_float32_states_stay_float32(encoder: Encoder, state: EncoderState) -> None:
    restored = EncoderState.from_bytes(state.to(dtype=torch.float32).to_bytes(), like=encoder.init_state(1))
    assert restored.layers[0].m.dtype == torch.float32


@pytest.mark.parametrize("bit", range(8))
def test_every_damaged_bit_is_noticed(bit: int, encoder: Encoder, state: EncoderState) -> None:
    blob, like = state.to_bytes(fingerprint="abcdef"), encoder.init_state(1)
    for place in [*range(WHOLE_HEAD + 20), 200, len(blob) - 1]:
        damaged = bytearray(blob)
        damaged[place] ^= 1 << bit
        with pytest.raises(StateError):
            EncoderState.from_bytes(bytes(damaged), like=like)


@pytest.mark.parametrize("shift", [-3, -1, 1, 2, 5, 200])
def test_lengths_that_were_moved_are_noticed(shift: int, encoder: Encoder, state: EncoderState) -> None:
    blob = bytearray(state.to_bytes(fingerprint="abcdef"))
    magic, version, name_size, payload_size = HEAD.unpack_from(blob)
    HEAD.pack_into(blob, 0, magic, version, name_size + shift, payload_size - shift)
    with pytest.raises(StateError, match="checksum does not match"):
        EncoderState.from_bytes(bytes(blob), like=encoder.init_state(1))


@pytest.mark.parametrize("version", [0, 1])
def test_an_older_format_is_refused_by_name(version: int, encoder: Encoder, state: EncoderState) -> None:
    blob = bytearray(state.to_bytes())
    struct.pack_into("<H", blob, 8, version)
    with pytest.raises(StateError, match=f"format version {version}, which an earlier aaren wrote"):
        EncoderState.from_bytes(bytes(blob), like=encoder.init_state(1))


@pytest.mark.parametrize("size", [0, 7, WHOLE_HEAD - 1, WHOLE_HEAD, 300])
def test_truncated(size: int, encoder: Encoder, state: EncoderState) -> None:
    with pytest.raises(StateError, match=r"only the beginning of one|cut short"):
        EncoderState.from_bytes(state.to_bytes()[:size], like=encoder.init_state(1))


def test_damaged_and_foreign_bytes_are_named(encoder: Encoder, state: EncoderState) -> None:
    like = encoder.init_state(1)
    blob = state.to_bytes()
    with pytest.raises(StateError, match="are not a saved state"):
        EncoderState.from_bytes(b"x" * 200, like=like)
    with pytest.raises(
        StateError, match=r"checksum does not match its bytes: it was damaged\. Use an older copy"
    ):
        EncoderState.from_bytes(blob[:-1] + bytes([blob[-1] ^ 1]), like=like)
    with pytest.raises(StateError, match="cut short or added to"):
        EncoderState.from_bytes(blob + b"\0", like=like)


def test_a_newer_format_says_upgrade(encoder: Encoder, state: EncoderState) -> None:
    blob = bytearray(state.to_bytes())
    struct.pack_into("<H", blob, 8, 3)
    with pytest.raises(StateError, match=r"format version 3; this aaren reads 2\. Upgrade"):
        EncoderState.from_bytes(bytes(blob), like=encoder.init_state(1))


def test_a_state_of_another_model(encoder: Encoder, state: EncoderState) -> None:
    blob = state.to_bytes(fingerprint=encoder.fingerprint())
    other = Encoder(encoder.config)
    with pytest.raises(
        StateError, match=f"saved by the model with fingerprint {encoder.fingerprint()}; yours has"
    ):
        EncoderState.from_bytes(blob, like=other.init_state(1), fingerprint=other.fingerprint())
    for options, words in (
        ({"num_heads": 4}, r"the saved layers\.0\.m has shape \(3, 2\).*needs \(b, 4\)"),
        ({"num_layers": 3}, "saved by a model with other layers"),
        ({"mixer": "gru"}, "saved by a model with other layers"),
        ({"mixer": "softmax"}, "saved by a model with other layers"),
    ):
        config = EncoderConfig(**{"width": 8, "num_heads": 2, "num_layers": 2, **options})
        with pytest.raises(StateError, match=words):
            EncoderState.from_bytes(blob, like=Encoder(config).init_state(1))


def test_a_cache_of_another_model() -> None:
    ours, theirs = (
        Encoder(EncoderConfig(width=8, num_heads=heads, num_layers=1, mixer="softmax")) for heads in (2, 4)
    )
    blob = ours(torch.randn(2, 3, 8))[1].to_bytes()
    with pytest.raises(StateError, match=r"has keys \(2, 2, 3, 4\).*needs \(b, 4, slots, 2\)"):
        EncoderState.from_bytes(blob, like=theirs.init_state(1))


def test_only_tensors_and_numbers_are_states() -> None:
    with pytest.raises(StateError, match="a state consists of tensors and numbers; it is a str"):
        state_to_bytes("state")
