import pytest
import torch
from torch import Tensor

from aaren.nn.wkv import LIGHTEST, log_weights
from aaren.ops import ScanState


def by_recurrence(scores: Tensor, log_decay: Tensor, first: Tensor) -> Tensor:
    found = [first]
    for k in range(scores.shape[1]):
        found.append(torch.logaddexp(found[-1] + log_decay[:, k], scores[:, k]))
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("t", [1, 63, 64, 130])
def test_values_and_gradients_equal_the_recurrence(t: int, rng: torch.Generator) -> None:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    scores, decay = (5.0 * draw(2, t, 3)).requires_grad_(), (-draw(2, t, 3).abs()).requires_grad_()
    m, u = draw(2, 3).requires_grad_(), draw(2, 3).exp().requires_grad_()
    found = log_weights(scores, decay, None, ScanState(m, u, torch.zeros(2, 3, 1, dtype=torch.float64)))
    expected = by_recurrence(scores, decay, m + u.log())
    torch.testing.assert_close(found, expected)
    weights, inputs = draw(2, t + 1, 3), [scores, decay, m, u]
    grads = [torch.autograd.grad((y * weights).sum(), inputs) for y in (found, expected)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_an_empty_prefix_weighs_nothing() -> None:
    mask = torch.tensor([[False, True]])
    scores = torch.tensor([[[9.0], [2.0]]])
    found = log_weights(scores, torch.zeros(1, 2, 1), mask, ScanState.empty((1, 1), 1))
    assert found.flatten().tolist() == [LIGHTEST, LIGHTEST, 2.0]
