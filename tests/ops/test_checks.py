import pytest
import torch
from torch import Tensor

from aaren.errors import AarenError, ShapeError
from aaren.ops import ScanState, scan_attention

SCORES, VALUES = torch.zeros(2, 5, 3), torch.zeros(2, 5, 3, 4)


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


def test_initial_state():
    refuse(r"m, u of shape \(2, 3\) and w of shape \(2, 3, 4\)", initial_state=ScanState.empty((1, 3), 4))
    mixed = ScanState.empty((2, 3), 4)._replace(m=torch.zeros(2, 3))
    refuse("one floating dtype; got torch.float32, torch.float64", initial_state=mixed)
    refuse("initial_state must be a ScanState; got tuple", initial_state=(SCORES[:, 0], SCORES[:, 0], VALUES))


def test_devices():
    refuse("values must be on the device of scores, cpu; got meta.*Move it", values=VALUES.to("meta"))


def test_fused_refuses_other_devices():
    with pytest.raises(ShapeError, match="log_decay must be on the device"):
        scan_attention(SCORES, VALUES, log_decay=SCORES.to("meta"))
