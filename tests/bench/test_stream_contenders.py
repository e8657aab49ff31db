import torch

from aaren.bench.stream_contenders import (
    AAREN,
    CACHED_QUERY,
    FOLDED,
    PAPER,
    SIZES,
    SMALL,
    TRANSFORMER,
    build,
    count_parameters,
)


def test_the_papers_parameter_counts() -> None:
    assert count_parameters(build(PAPER, TRANSFORMER)) == 3_152_384
    assert count_parameters(build(PAPER, AAREN)) == 3_152_896


def test_all_aarens_compute_the_same() -> None:
    items = torch.randn(5, 1, SIZES[SMALL].width, generator=torch.Generator().manual_seed(0))
    outputs = {}
    with torch.inference_mode():
        for name in (AAREN, CACHED_QUERY, FOLDED):
            encoder = build(SMALL, name).eval()
            state = encoder.init_state(1)
            for item in items:
                outputs[name], state = encoder.step(item, state)
    torch.testing.assert_close(outputs[CACHED_QUERY], outputs[AAREN])
    torch.testing.assert_close(outputs[FOLDED], outputs[AAREN])


def test_the_kept_query_has_no_projection_left() -> None:
    encoder = build(SMALL, CACHED_QUERY)
    assert not any(name.endswith("q_proj.weight") for name, _ in encoder.named_parameters())


def test_building_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    build(SMALL, AAREN)
    assert torch.equal(torch.rand(3), wanted)
