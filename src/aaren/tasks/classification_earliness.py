"""How early a classifier knows: accuracy against the fraction of each series that it has seen.

A causal model is read as it goes along; any other is given every prefix anew, as if the series ended there.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from aaren.data.classification.loading import LabelledSeries
from aaren.models import Classifier
from aaren.tasks.metrics import Mean

FRACTIONS = tuple(round(0.05 * step, 2) for step in range(1, 21))
BATCH = 64  # cases at once
PREFIX = "accuracy_at_"


def accuracy_by_fraction(
    model: nn.Module, series: LabelledSeries, fractions: Sequence[float] = FRACTIONS
) -> dict[float, float]:
    """Return the accuracy after each fraction of every series, rounded up to whole steps.

    Args:
        model: takes (values, mask=...) as `Classifier` does; in evaluation mode.
        series: the cases.
        fractions: above 0 and at most 1.
    """
    device = next(model.parameters()).device
    is_followed = isinstance(model, Classifier) and model.config.is_causal
    means = [Mean() for _ in fractions]
    with torch.no_grad():
        for numbers in torch.split(torch.arange(len(series)), BATCH):
            values, mask, labels = (
                part[numbers].to(device) for part in (series.values, series.mask, series.labels)
            )
            lengths = mask.sum(1)
            scores = None
            if is_followed:
                assert isinstance(model, Classifier)
                scores, _ = model.follow(values, mask=mask)
            for mean, fraction in zip(means, fractions, strict=True):
                steps = steps_of(lengths, fraction)
                if scores is not None:
                    found = scores[torch.arange(len(labels), device=device), steps - 1]
                else:
                    found = model(
                        values, mask=mask & (torch.arange(mask.shape[1], device=device) < steps[:, None])
                    )
                mean.add(found.argmax(-1) == labels)
    return {fraction: mean.value for fraction, mean in zip(fractions, means, strict=True)}


def steps_of(lengths: Tensor, fraction: float) -> Tensor:
    """Return how many steps a fraction of each length is, rounded up and at least one.

    >>> steps_of(torch.tensor([7, 20, 29]), 0.05)
    tensor([1, 1, 2])
    """
    # A hundredth of a millionth less, because 0.15 * 20 is a little more than 3.
    return torch.ceil(lengths.double() * fraction - 1e-8).long().clamp(min=1)


def as_metrics(curve: Mapping[float, float]) -> dict[str, float]:
    """Name the points of a curve as they stand in a record.

    >>> as_metrics({0.05: 0.5, 1.0: 0.75})
    {'accuracy_at_0.05': 0.5, 'accuracy_at_1.00': 0.75}
    """
    return {f"{PREFIX}{fraction:.2f}": accuracy for fraction, accuracy in curve.items()}


def curve_of(metrics: Mapping[str, float]) -> list[tuple[float, float]]:
    """Read the curve back from a record's test metrics: pairs of fraction seen and accuracy, in order.

    >>> curve_of({"accuracy": 0.75, "accuracy_at_1.00": 0.75, "accuracy_at_0.05": 0.5})
    [(0.05, 0.5), (1.0, 0.75)]
    """
    return sorted(
        (float(name.removeprefix(PREFIX)), value)
        for name, value in metrics.items()
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).replace(".", "", 1).isdecimal()
    )
