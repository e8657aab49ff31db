import torch

from aaren.ops import ScanState
from aaren.ops.scans import Elements, join_decaying
from aaren.ops.state import as_token


def run(seed: int) -> Elements:
    """The summary of some run of items: its total decay and its state."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return (-normal(2, 3).abs(), normal(2, 3) * 10, normal(2, 3).abs(), normal(2, 3, 4))


def assert_equal_runs(a: Elements, b: Elements) -> None:
    torch.testing.assert_close(a[0], b[0])
    for left, right in zip(as_token(ScanState(*a[1:])), as_token(ScanState(*b[1:])), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_joining_with_decay_is_associative():
    a, b, c = run(0), run(1), run(2)
    assert_equal_runs(join_decaying(join_decaying(a, b), c), join_decaying(a, join_decaying(b, c)))


def test_joining_with_decay_does_not_commute():
    a, b = run(0), run(1)
    assert not torch.allclose(join_decaying(a, b)[3], join_decaying(b, a)[3])


def test_the_empty_run_is_the_identity_on_both_sides():
    a = run(3)
    empty = (torch.zeros(2, 3, dtype=torch.float64), *ScanState.empty((2, 3), 4))
    assert_equal_runs(join_decaying(a, empty), a)
    assert_equal_runs(join_decaying(empty, a), a)
