import math

import pytest
import torch
import torch.nn.functional as F

from aaren.errors import ShapeError
from aaren.nn.embedding import SeriesEmbedding, ValueEmbedding, position_encoding


def test_the_circular_embedding_is_a_circular_convolution(rng: torch.Generator) -> None:
    embed = ValueEmbedding(3, 8)
    rows = torch.randn(2, 10, 3, generator=rng)
    kernel = embed.weight.view(8, 3, 3).transpose(1, 2)  # (out, series, place)
    padded = F.pad(rows.transpose(1, 2), (1, 1), mode="circular")
    torch.testing.assert_close(embed(rows), F.conv1d(padded, kernel).transpose(1, 2))


def test_the_causal_embedding_sees_no_later_row_and_can_be_stepped(rng: torch.Generator) -> None:
    embed = ValueEmbedding(3, 8, padding="causal").double()
    rows = torch.randn(2, 10, 3, generator=rng, dtype=torch.float64)
    whole = embed(rows)
    changed = rows.clone()
    changed[:, 6:] = 9.0
    assert torch.equal(embed(changed)[:, :6], whole[:, :6])
    torch.testing.assert_close(
        torch.cat([embed(rows[:, :4]), embed(rows[:, 4:], rows[:, 2:4])], dim=1), whole
    )
    torch.testing.assert_close(embed.step(rows[:, 9], rows[:, 7:9]), whole[:, 9])
    torch.testing.assert_close(embed.step(rows[:, 0], embed.init_tail(2)), whole[:, 0])


def test_weights_are_kaiming_normal_over_the_fan_in() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weight = ValueEmbedding(40, 400).weight
    assert weight.std().item() == pytest.approx(math.sqrt(2.0 / 120), rel=0.02)


def test_positions_are_sines_on_even_and_cosines_on_odd_places() -> None:
    encoding = position_encoding(50, 6)
    assert encoding[7, 0].item() == pytest.approx(math.sin(7.0), abs=1e-6)
    assert encoding[7, 1].item() == pytest.approx(math.cos(7.0), abs=1e-6)
    assert encoding[7, 4].item() == pytest.approx(math.sin(7.0 / 10_000 ** (4 / 6)), abs=1e-6)
    assert position_encoding(3, 5).shape == (3, 5)


def test_positions_are_no_part_of_the_saved_weights() -> None:
    assert set(SeriesEmbedding(7, 16, num_marks=4, max_steps=9).state_dict()) == {
        "value.weight",
        "mark.weight",
    }


def test_other_columns_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"with 3 series; got \(2, 5, 4\).*columns that the model was trained on"
    ):
        ValueEmbedding(3, 8)(torch.zeros(2, 5, 4))
