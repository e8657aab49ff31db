import torch

from aaren.ops.packing import pad, pad_index, unpad


def test_padding_and_unpadding_is_the_identity(rng):
    packed = torch.randn(1, 9, 2, generator=rng)
    index, is_real = pad_index(torch.tensor([0, 3, 3, 4, 9]))
    padded = pad(packed, index)
    assert padded.shape == (4, 5, 2)
    assert is_real.sum(1).tolist() == [3, 0, 1, 5]
    assert torch.equal(unpad(padded, is_real), packed)


def test_no_sequences_and_empty_sequences():
    index, is_real = pad_index(torch.tensor([0, 0]))
    assert index.shape == is_real.shape == (1, 0)
    assert pad_index(torch.tensor([0]))[0].shape == (0, 0)
