"""How `AarenClassifier` trains a network: as the lab does, with smoothed labels and a little noise."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.classification.batches import LabelledBatch, LabelledSeries
from aaren.classification.config import ClassificationConfig
from aaren.classification.experiment import ClassificationExperiment, ClassificationParts
from aaren.classification.model import Classifier, ClassifierConfig
from aaren.classification.ridge import LeftOut
from aaren.classification.session import decision_steps
from aaren.engine.plan import RunStatus

SMOOTHING = 0.1  # of the labels
NOISE = 0.05  # standard deviation of what is added to a sample; a channel's scale varies twice as much
WEIGHT_DECAY = 1e-2
CLIP_NORM = 1.0
STILL_FALLING = 0.03  # of the loss, from one fifth of the training to the next: the rate is nearly 0 by then
JUDGED_AT_ONCE = 64  # cases


class NetworkExperiment(ClassificationExperiment):
    """Training for few cases: labels are smoothed and noise is added to every series."""

    def __init__(
        self,
        config: ClassificationConfig,
        parts: ClassificationParts,
        *,
        seed: int,
        network: ClassifierConfig,
        smoothing: float = SMOOTHING,
        noise: float = NOISE,
    ) -> None:
        self.smoothing, self.noise = smoothing, noise
        super().__init__(config, parts, seed=seed, network=network)

    def loss(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        """Return the mean cross-entropy with smoothed labels of series with noise."""
        values = batch.values
        if self.noise:
            scales = 1.0 + 2.0 * self.noise * torch.randn(values[:, :1].shape)
            added = self.noise * torch.randn(values.shape)
            values = values * scales.to(values) + added.to(values)
        scores = model(values, mask=batch.mask)
        return F.cross_entropy(scores, batch.labels, label_smoothing=self.smoothing)


def is_still_improving(status: RunStatus) -> bool:
    """Tell whether the training loss still fell when the planned updates were over.

    >>> from aaren.engine.plan import Evaluation
    >>> status = RunStatus(ended_by="max_updates")
    >>> row = {"update": 1, "epoch": 1, "learning_rate_factor": 1.0, "seconds": 1.0, "is_best": True}
    >>> status.curve += [Evaluation(loss=loss, validation={}, **row) for loss in (1.0, 0.9, 0.8, 0.7, 0.6)]
    >>> is_still_improving(status)
    True
    """
    fifth = len(status.curve) // 5
    if status.ended_by != "max_updates" or not fifth:
        return False
    losses = [evaluation["loss"] for evaluation in status.curve]
    before, last = (sum(part) / fifth for part in (losses[-2 * fifth : -fifth], losses[-fifth:]))
    return before - last > STILL_FALLING * before


@torch.no_grad()
def judge_prefixes(model: Classifier, held: LabelledSeries) -> LeftOut:
    """Score prefixes of held-out cases, at the steps where early stopping is evaluated."""
    decided_at = torch.tensor(decision_steps(model.config.length))
    lengths = held.mask.sum(1)
    steps = torch.minimum(decided_at.unsqueeze(0), lengths.unsqueeze(1))
    every = torch.cat([steps, lengths.unsqueeze(1)], dim=1)
    found = [
        model.score_prefixes(held.values[part], every[part], mask=held.mask[part]).softmax(-1)
        for part in torch.split(torch.arange(len(held)), JUDGED_AT_ONCE)
    ]
    return LeftOut(probabilities=torch.cat(found).double(), steps=steps, lengths=lengths, labels=held.labels)
