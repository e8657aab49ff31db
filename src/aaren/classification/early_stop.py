"""Stop early: answer as soon as one class is probable enough, by a threshold validated on left-out cases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class EarlyStop(NamedTuple):
    """The rule "answer as soon as one class is this probable", judged on cases left out of the fit."""

    threshold: float
    accuracy: float  # of the rule
    full_accuracy: float  # of waiting until the end
    share_seen: float  # mean part of a series that the rule waits for


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LeftOut:
    """The heads' scores of training cases, each left out of the fit; all choices use them."""

    probabilities: Tensor  # (cases, spans + 1, classes); the last: of complete series
    steps: Tensor  # (cases, spans)  where the prefixes were cut
    lengths: Tensor  # (cases,)
    labels: Tensor  # (cases,)

    def stops(self, threshold: float) -> tuple[Tensor, Tensor]:
        """Return which cases the rule gets right, and which share of each it waits for."""
        asked = self.probabilities[:, :-1]
        is_sure = (asked.amax(-1) >= threshold) & (self.steps < self.lengths.unsqueeze(1))
        stops = is_sure.any(1)
        first = torch.where(stops, is_sure.double().argmax(1), asked.shape[1])
        rows = torch.arange(len(first))
        is_right = self.probabilities[rows, first].argmax(-1) == self.labels
        steps = torch.cat([self.steps, self.lengths.unsqueeze(1)], dim=1)[rows, first]
        return is_right, steps / self.lengths

    def curve(self, thresholds: Sequence[float]) -> list[EarlyStop]:
        """Return how the rule trades accuracy for earliness, by threshold."""
        full = float((self.probabilities[:, -1].argmax(-1) == self.labels).double().mean())
        found = []
        for threshold in thresholds:
            is_right, share = self.stops(threshold)
            found.append(
                EarlyStop(threshold, float(is_right.double().mean()), full, float(share.double().mean()))
            )
        return found

    def choose(self, loss: float) -> EarlyStop:
        """Return the lowest threshold that costs at most `loss` of accuracy, less one standard error.

        It is 1.01, which is never reached, where no early decision keeps within the loss.
        """
        is_right_at_end = self.probabilities[:, -1].argmax(-1) == self.labels
        full, cases = float(is_right_at_end.double().mean()), len(self.labels)
        best = EarlyStop(1.01, full, full, 1.0)
        for threshold in np.linspace(0.99, 0.3, 70).tolist():
            is_right, share = self.stops(threshold)
            lost = int((is_right_at_end & ~is_right).sum())
            won = int((~is_right_at_end & is_right).sum())
            if threshold < min(full, 0.99) or lost - won + (lost + won) ** 0.5 > max(loss * cases, 1.0):
                break
            accuracy = float(is_right.double().mean())
            best = EarlyStop(threshold, accuracy, full, float(share.double().mean()))
        return best
