import torch

from aaren.ops.pages import LARGE, on_huge_pages


def test_advice_changes_nothing_but_pages(rng):
    small = torch.randn(10, generator=rng)
    large = torch.empty(LARGE // 4 + 1001)[7:]
    assert on_huge_pages(small) is small
    assert on_huge_pages(large) is large
    large.fill_(2.0)
    assert large.sum().item() == 2.0 * large.numel()
    assert on_huge_pages(torch.empty(0)).numel() == 0
