import math

import pytest
import torch
from torch import Tensor

from aaren.ops import ScanState
from aaren.ops.scans import Elements, hillis_steele, join_decaying, ladner_fischer
from aaren.ops.state import as_token

ALGORITHMS = [hillis_steele, ladner_fischer]
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1000]


class CountedMatmul:
    """Matrix products: associative and not commutative. Counts parallel rounds and single combinations."""

    def __init__(self) -> None:
        self.rounds = 0
        self.combinations = 0

    def __call__(self, earlier: Elements, later: Elements) -> Elements:
        self.rounds += 1
        self.combinations += earlier[0].shape[1]
        return (earlier[0] @ later[0],)


def running_products(matrices: Tensor) -> Tensor:
    products = [matrices[:, 0]]
    for k in range(1, matrices.shape[1]):
        products.append(products[-1] @ matrices[:, k])
    return torch.stack(products, dim=1)


def rotations(length: int, rng: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(2, length, 3, 3, generator=rng, dtype=torch.float64)).Q


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("length", LENGTHS)
def test_scans_a_sum(algorithm, length):
    numbers = torch.arange(length).unsqueeze(0)
    (sums,) = algorithm(lambda a, b: (a[0] + b[0],), (numbers,))
    assert torch.equal(sums, numbers.cumsum(1))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("length", LENGTHS)
def test_scans_an_operator_that_does_not_commute(algorithm, length, rng):
    matrices = rotations(length, rng)
    (products,) = algorithm(CountedMatmul(), (matrices,))
    torch.testing.assert_close(products, running_products(matrices), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
def test_hillis_steele_takes_log2_n_rounds(length, rng):
    operator = CountedMatmul()
    hillis_steele(operator, (rotations(length, rng),))
    assert operator.rounds == math.ceil(math.log2(length))


@pytest.mark.parametrize("length", LENGTHS)
def test_ladner_fischer_takes_linear_work(length, rng):
    operator = CountedMatmul()
    ladner_fischer(operator, (rotations(length, rng),))
    assert operator.rounds <= 2 * math.ceil(math.log2(length))
    assert operator.combinations <= 2 * length


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_empty_sequence_stays_empty(algorithm):
    (sums,) = algorithm(lambda a, b: (a[0] + b[0],), (torch.zeros(2, 0),))
    assert sums.shape == (2, 0)


def test_algorithm_1_as_printed_is_wrong():
    """The paper starts at offset 2 and puts the later operand first; both faults show."""

    def as_printed(numbers: Tensor) -> Tensor:
        for i in range(1, math.floor(math.log2(len(numbers))) + 1):
            offset = 2**i
            joined = numbers[offset:] + numbers[:-offset]
            numbers = torch.cat([numbers[:offset], joined])
        return numbers

    numbers = torch.arange(1, 9)
    assert not torch.equal(as_printed(numbers), numbers.cumsum(0))

    matrices = rotations(8, torch.Generator().manual_seed(0))
    (swapped,) = hillis_steele(lambda earlier, later: (later[0] @ earlier[0],), (matrices,))
    assert (swapped - running_products(matrices)).abs().max() > 0.1


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
