from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.classification.baselines import ReferenceClassifier, ReferenceClassifierConfig
from aaren.errors import ConfigError, DataError, ShapeError
from aaren.stream.saved import load_model, save_model

LENGTH = 20


def waves(rng: torch.Generator, cases: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    """Slow and fast waves with two channels, of unequal lengths."""
    labels = torch.arange(cases) % 2
    phase = torch.rand(cases, 1, 2, generator=rng)
    steps = torch.arange(LENGTH).view(1, -1, 1)
    values = torch.sin(phase + steps * torch.where(labels == 0, 0.4, 1.3).view(-1, 1, 1))
    lengths = torch.randint(14, LENGTH + 1, (cases,), generator=rng)
    mask = steps.squeeze(-1) < lengths.unsqueeze(1)
    return values * mask.unsqueeze(-1), mask, labels


def reference(kind: str, rng: torch.Generator) -> tuple[ReferenceClassifier, tuple[Tensor, Tensor, Tensor]]:
    data = waves(rng)
    model = ReferenceClassifier(
        ReferenceClassifierConfig(kind=kind, num_channels=2, num_classes=2, length=LENGTH, num_cases=24)
    )
    model.fit(*data)
    return model, data


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("majority", 0.5),
        pytest.param("dtw", 0.9, marks=pytest.mark.slow),  # the first time numba compiles for a minute
        pytest.param("minirocket", 0.8, marks=pytest.mark.long),
    ],
)
def test_references_classify_and_come_back_from_disk(
    kind: str, least: float, rng: torch.Generator, tmp_path: Path
) -> None:
    if kind != "majority":
        pytest.importorskip("aeon")
    model, _ = reference(kind, rng)
    values, mask, labels = waves(rng)
    scores = model(values, mask=mask)
    assert torch.get_num_threads() == 1  # numba's loops leave torch as it was
    assert scores.sum(-1).eq(1.0).all()
    assert (scores.argmax(-1) == labels).double().mean() >= least
    again = load_model(save_model(model, tmp_path / "model"))
    assert torch.equal(again(values, mask=mask), scores)


@pytest.mark.slow
def test_the_nearest_neighbour_of_a_case_is_itself(rng: torch.Generator) -> None:
    pytest.importorskip("aeon")
    model, (values, mask, labels) = reference("dtw", rng)
    assert torch.equal(model(values, mask=mask).argmax(-1), labels)


@pytest.mark.long
def test_padding_beyond_what_minirocket_knows_is_cut(rng: torch.Generator) -> None:
    pytest.importorskip("aeon")
    model, (values, mask, _) = reference("minirocket", rng)
    padded, padded_mask = F.pad(values, (0, 0, 0, 5)), F.pad(mask, (0, 5))
    assert torch.equal(model(padded, mask=padded_mask), model(values, mask=mask))


def test_what_cannot_be_is_said(rng: torch.Generator) -> None:
    sizes = {"num_channels": 2, "num_classes": 2, "num_cases": 24}
    with pytest.raises(
        ConfigError, match="MiniRocket needs series of at least 9 steps; the longest here has 8"
    ):
        ReferenceClassifierConfig(kind="minirocket", length=8, **sizes)
    with pytest.raises(ConfigError, match="unknown reference 'rocket'; did you mean 'minirocket'"):
        ReferenceClassifierConfig(kind="rocket", length=8, **sizes)
    model, (values, mask, _) = reference("minirocket", rng)
    longer, longer_mask = (torch.cat([given, given[:, :5]], dim=1) for given in (values, mask))
    with pytest.raises(
        ShapeError, match=r"knows series of up to 20 steps; this one has \d\d\. Cut it, or use dtw"
    ):
        model(longer, mask=longer_mask)
    model, _ = reference("majority", rng)
    with pytest.raises(DataError, match=r"values must be \(b, t, 2\)"):
        model(values[..., :1])
