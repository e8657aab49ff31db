import pytest
import torch

from aaren.errors import ShapeError
from aaren.nn import Block, EncoderConfig


def count(config: EncoderConfig) -> int:
    return sum(p.numel() for p in Block(config).parameters())


def test_the_papers_parameter_counts() -> None:
    shared = {"width": 512, "num_heads": 4, "ff_width": 2048}
    assert count(EncoderConfig(**shared, mixer="softmax")) == 3_152_384
    assert count(EncoderConfig(**shared, mixer="aaren")) == 3_152_896


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_the_softmax_block_is_pytorchs_encoder_layer(norm: str, activation: str) -> None:
    config = EncoderConfig(
        width=16, num_heads=4, ff_width=32, dropout=0.0, norm=norm, activation=activation, mixer="softmax"
    )
    block = Block(config, dtype=torch.float64)
    own = torch.nn.TransformerEncoderLayer(
        16,
        4,
        32,
        dropout=0.0,
        activation=activation,
        norm_first=norm == "pre",
        batch_first=True,
        dtype=torch.float64,
    )
    mixer = block.mixer
    with torch.no_grad():
        own.self_attn.in_proj_weight.copy_(
            torch.cat([p.weight for p in (mixer.q_proj, mixer.k_proj, mixer.v_proj)])
        )
        own.self_attn.in_proj_bias.copy_(
            torch.cat([p.bias for p in (mixer.q_proj, mixer.k_proj, mixer.v_proj)])
        )
    own.self_attn.out_proj.load_state_dict(mixer.out_proj.state_dict())
    own.linear1.load_state_dict(block.feed_forward.widen.state_dict())
    own.linear2.load_state_dict(block.feed_forward.narrow.state_dict())
    own.norm1.load_state_dict(block.mixer_norm.state_dict())
    own.norm2.load_state_dict(block.feed_forward_norm.state_dict())
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    torch.testing.assert_close(block(x)[0], own(x, src_mask=causal, is_causal=True))


@pytest.mark.parametrize("ff_inner_dropout", [True, False])
def test_dropout_stands_where_the_base_models_have_it(ff_inner_dropout: bool) -> None:
    config = EncoderConfig(width=8, num_heads=2, dropout=0.3, ff_inner_dropout=ff_inner_dropout)
    block = Block(config)
    assert block.feed_forward.inner_dropout == (0.3 if ff_inner_dropout else 0.0)
    assert block.mixer.dropout == 0.3
    x = torch.randn(2, 4, 8)
    assert not torch.equal(block(x)[0], block(x)[0])
    block.eval()
    assert torch.equal(block(x)[0], block(x)[0])


def test_attention_dropout_may_differ() -> None:
    config = EncoderConfig(width=8, num_heads=2, dropout=0.3, attention_dropout=0.0, dropout_on="output")
    assert (Block(config).mixer.dropout, Block(config).mixer.dropout_on) == (0.0, "output")


def test_learned_decay_adds_to_the_one_passed_in() -> None:
    block = Block(EncoderConfig(width=8, num_heads=2, dropout=0.0, decay="learned"))
    x, decay = torch.randn(1, 5, 8), torch.full((1, 5, 2), -0.5)
    both, _ = block(x, log_decay=decay)
    learned = block.decay((1, 5))
    block.decay = None
    torch.testing.assert_close(block(x, log_decay=decay + learned)[0], both)


def test_a_decay_of_another_shape_is_not_broadcast() -> None:
    block = Block(EncoderConfig(width=8, num_heads=2, decay="learned"))
    with pytest.raises(ShapeError, match=r"log_decay must be \(b, t, h\) = \(3, 4, 2\)"):
        block(torch.randn(3, 4, 8), log_decay=torch.zeros(2))


def test_folding_leaves_the_original_untouched() -> None:
    block = Block(EncoderConfig(width=8, num_heads=2, decay="learned"))
    folded = block.fold()
    assert block.training
    assert all(p.requires_grad for p in block.parameters())
    assert not folded.training
    assert not any(p.requires_grad for p in folded.parameters())
    assert folded.decay is not block.decay
    assert "norm=post, dropout=0.1" in repr(folded)
