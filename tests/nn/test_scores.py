import pytest
import torch

from aaren.nn import Encoder, EncoderConfig
from aaren.nn.encoder import MIXERS


@pytest.mark.parametrize("mixer", MIXERS)
def test_shapes_can_be_asked_of_the_meta_device(mixer: str) -> None:
    encoder = Encoder(EncoderConfig(width=8, num_heads=2, mixer=mixer), device="meta").eval()
    x = torch.empty(3, 5, 8, device="meta")
    y, state = encoder(x)
    y_next, _ = encoder.step(x[:, 0], state)
    assert (y.shape, y_next.shape) == (x.shape, (3, 8))
    assert y.is_meta
