import pytest
import torch

from aaren.errors import StateError
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.nn.checks import check_model_state
from aaren.ops import ScanState
from aaren.stream.session import count_streams


@pytest.mark.parametrize("mixer", ["aaren", "softmax", "gru", "lstm", "wkv"])
def test_streams_are_counted_in_every_kind_of_state(mixer: str) -> None:
    encoder = Encoder(EncoderConfig(width=8, num_heads=2, num_layers=1, mixer=mixer))
    for streams in (0, 3):
        assert count_streams(encoder.init_state(streams)) == streams
    assert count_streams(EncoderState(())) is None
    assert count_streams((EncoderState(()), torch.zeros(4, 2))) == 4


def test_the_numbers_and_the_cure_are_said() -> None:
    state = ScanState.empty((3, 1), 1)
    check_model_state(state, ScanState, 3)
    with pytest.raises(StateError, match=r"of 3 streams; items for 1 came.*mask=False.*init_state\(1\)"):
        check_model_state(state, ScanState, 1)
