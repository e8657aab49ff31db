import pytest
import torch
from torch import Tensor

from aaren.errors import AarenError, ShapeError, StateError
from aaren.ops import ScanState, scan_attention

SCORES, VALUES = torch.zeros(2, 5, 3), torch.zeros(2, 5, 3, 4)
ONE_SCORES, ONE_VALUES = torch.zeros(1, 5, 3), torch.zeros(1, 5, 3, 4)


def refuse(expected: str, scores: Tensor = SCORES, values: Tensor = VALUES, **options: object) -> None:
    with pytest.raises(AarenError, match=expected) as caught:
        scan_attention(scores, values, **options)
    assert isinstance(caught.value, ValueError)


def test_shapes_of_items():
    refuse(r"scores must be \(b, t, h\).*got \(2, 5\).*unsqueeze\(-1\)", SCORES[..., 0])
    refuse(r"values must be \(b, t, h, d\) .*got \(2, 5, 12\).*Split the heads", values=VALUES.flatten(2))
    refuse(r"values must be .* of scores, \(2, 5, 3\); got \(2, 4, 3, 4\)", values=VALUES[:, :4])
    refuse("scores must be floating point; got torch.int64", SCORES.long())


def test_mask():
    refuse("mask must be bool, True = real item; got torch.float32.*mask.bool()", mask=torch.ones(2, 5))
    refuse(r"mask must be \(b, t\) = \(2, 5\); got \(2, 5, 3\)", mask=torch.ones(2, 5, 3, dtype=torch.bool))


def test_log_decay():
    refuse(r"log_decay must be \(b, t, h\) like scores.*Expand it", log_decay=torch.zeros(3))
    refuse("log_decay must be <= 0 everywhere.*largest entry is 0.5.*softplus", log_decay=SCORES + 0.5)
    refuse("log_decay must be floating point", log_decay=SCORES.long())


@pytest.mark.parametrize("bounds", [[1, 5], [0, 4], [0, 6], [0, 3, 2, 5], [-1, 5]])
def test_bounds_of_packed_sequences(bounds):
    refuse(
        "cu_seqlens must start at 0, never decrease and end at t = 5; got .*cumsum",
        ONE_SCORES,
        ONE_VALUES,
        cu_seqlens=torch.tensor(bounds),
    )


def test_form_of_packed_sequences():
    refuse("b must be 1 with cu_seqlens; got b = 2.*mask instead", cu_seqlens=torch.tensor([0, 5]))
    refuse(r"cu_seqlens must be \(n \+ 1,\)", ONE_SCORES, ONE_VALUES, cu_seqlens=torch.tensor([[0, 5]]))
    refuse(
        "of int32 or int64; got .* of torch.float32",
        ONE_SCORES,
        ONE_VALUES,
        cu_seqlens=torch.tensor([0.0, 5]),
    )


def test_initial_state():
    refuse(r"m, u of shape \(2, 3\) and w of shape \(2, 3, 4\)", initial_state=ScanState.empty((1, 3), 4))
    mixed = ScanState.empty((2, 3), 4)._replace(m=torch.zeros(2, 3))
    refuse("one floating dtype; got torch.float32, torch.float64", initial_state=mixed)
    refuse("initial_state must be a ScanState; got tuple", initial_state=(SCORES[:, 0], SCORES[:, 0], VALUES))
    with pytest.raises(StateError):
        scan_attention(
            ONE_SCORES,
            ONE_VALUES,
            cu_seqlens=torch.tensor([0, 2, 5]),
            initial_state=ScanState.empty((1, 3), 4),
        )


def test_devices():
    refuse("values must be on the device of scores, cpu; got meta.*Move it", values=VALUES.to("meta"))


def test_fused_refuses_other_devices():
    with pytest.raises(ShapeError, match="log_decay must be on the device"):
        scan_attention(SCORES, VALUES, log_decay=SCORES.to("meta"))
