"""Score a model on one part of its data: one pass, numbers out, nothing else moved."""

from collections.abc import Mapping

import torch
from torch import nn

from aaren.tasks.base import BatchT, Experiment, Part
from aaren.tasks.plan import Moment
from aaren.train.determinism import untouched_random_numbers


def evaluate(
    experiment: Experiment[BatchT], model: nn.Module, part: Part, moment: Moment
) -> Mapping[str, float]:
    """Evaluate without dropout, gradients, or a trace in the random numbers of the training."""
    was_training = model.training
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    model.eval()
    try:
        with torch.no_grad(), untouched_random_numbers(list(devices)):
            return experiment.evaluate(model, part, moment)
    finally:
        model.train(was_training)
