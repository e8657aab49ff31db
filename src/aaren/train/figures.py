"""figures.json: the few numbers of a run that its figures are drawn from. Knows no setting."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from aaren.tasks.base import BatchT, Experiment, Json
from aaren.train.determinism import untouched_random_numbers
from aaren.train.record import strict_json, write_text

FIGURES = "figures.json"


def collect_figures(experiment: Experiment[BatchT], model: nn.Module) -> Mapping[str, Json]:
    """Ask the experiment, without dropout, gradients, or a trace in the random numbers of the training."""
    was_training = model.training
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    model.eval()
    try:
        with torch.no_grad(), untouched_random_numbers(list(devices)):
            return experiment.figures(model)
    finally:
        model.train(was_training)


def write_figures(figures: Mapping[str, Json], folder: Path) -> Path | None:
    """Write what there is to draw into a run's folder; nothing to draw leaves no file."""
    if not figures:
        return None
    write_text(folder / FIGURES, strict_json(figures) + "\n")
    return folder / FIGURES
