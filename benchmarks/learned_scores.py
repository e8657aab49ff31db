"""Does attention with learned scores add anything to the default classifier's features?

    python benchmarks/learned_scores.py [--record FILE]     # about a CPU minute

Three-fold cross-validation on TRAIN. "equal": ridge over the share of time above each threshold, which is the
pooling of an Aaren head with equal scores. "learned": two more heads whose scores are linear in the same
values; everything is trained with Adam from the ridge solution, where all heads are equal. "trained": the
same training with the scores held at 0, so that the two differ in the scores alone.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.bench.record import machine
from aaren.classification.batches import LabelledSeries, pad
from aaren.classification.data import steady_statistics
from aaren.classification.features import FeatureClassifier
from aaren.classification.panels import scale
from aaren.classification.ridge import fit_features, plan_features
from aaren.files.atomic import write_text
from classifier import Split, load

RECORD = Path(__file__).parents[1] / "results" / "bench" / "learned-scores.json"
DATASETS = ("BasicMotions", "ArrowHead", "JapaneseVowels", "Handwriting")
FOLDS, EPOCHS, BATCH, RATE, HEADS = 3, 12, 16, 1e-3, 3  # one head of equal scores, two that learn


def values_of(model: FeatureClassifier, series: LabelledSeries) -> Tensor:
    """Return the values of every sample, (cases, steps, values) of 0 and 1."""
    units = model._units(series.values)
    window = model._before(units, None)
    return torch.cat([block for _, block in model._values(window, 0, units.shape[1])], dim=-1)


def predict(values: Tensor, mask: Tensor, scores: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Pool values (n, t, f) by heads whose scores (heads, f) are linear in them, and score the classes."""
    found = (values @ scores.T).masked_fill(~mask.unsqueeze(-1), -torch.inf).softmax(1)  # (n, t, heads)
    pooled = torch.einsum("nth,ntf->nhf", found, values)
    return torch.einsum("nhf,hkf->nk", pooled, weight) + bias


def train(
    model: FeatureClassifier, series: LabelledSeries, *, learns_scores: bool, seed: int
) -> list[Tensor]:
    """Train scores and head from the ridge solution."""
    values = values_of(model, series)
    scores = torch.zeros(HEADS, values.shape[-1])
    weight = (model.weight[-1] / HEADS).expand(HEADS, -1, -1).clone().requires_grad_()
    bias = model.bias[-1].clone().requires_grad_()
    own = torch.zeros(HEADS - 1, values.shape[-1], requires_grad=learns_scores)
    optimiser = torch.optim.Adam([weight, bias, *([own] if learns_scores else [])], lr=RATE)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for some in torch.split(torch.randperm(len(series), generator=generator), BATCH):
            every = torch.cat([scores[:1], own])
            found = predict(values[some], series.mask[some], every, weight, bias)
            optimiser.zero_grad()
            torch.autograd.backward(F.cross_entropy(found, series.labels[some]))
            optimiser.step()
    return [torch.cat([scores[:1], own]).detach(), weight.detach(), bias.detach()]


def measure(dataset: str, split: Split) -> dict[str, Any]:
    """Cross-validate on TRAIN."""
    labels = np.unique(split.train_labels, return_inverse=True)[1].astype(np.int64)
    folds = np.empty(len(labels), dtype=int)
    rng = np.random.default_rng(0)
    for label in np.unique(labels):
        places = rng.permutation(np.flatnonzero(labels == label))
        folds[places] = np.arange(len(places)) % FOLDS
    right = {"equal": 0, "trained": 0, "learned": 0}
    for fold in range(FOLDS):
        cases = [case.T for case in split.train]
        mean, deviation = steady_statistics([cases[i] for i in np.flatnonzero(folds != fold)])
        scaled = scale(cases, mean, deviation)
        whole = pad(scaled, labels, length=max(map(len, scaled)))
        kept, held = (
            whole.select(torch.from_numpy(np.flatnonzero(some))) for some in (folds != fold, folds == fold)
        )
        lengths = kept.mask.sum(1).tolist()
        config = plan_features(
            num_channels=cases[0].shape[1], num_classes=int(labels.max()) + 1, lengths=lengths, num_spans=0
        )
        model, _ = fit_features(kept, replace(config, num_poolings=1), seed=fold)
        asked = values_of(model, held)
        with torch.no_grad():
            right["equal"] += int((model(held.values, mask=held.mask).argmax(1) == held.labels).sum())
        for name in ("trained", "learned"):
            parts = train(model, kept, learns_scores=name == "learned", seed=fold)
            with torch.no_grad():
                right[name] += int((predict(asked, held.mask, *parts).argmax(1) == held.labels).sum())
    return {"dataset": dataset, "cases": len(labels), **{name: n / len(labels) for name, n in right.items()}}


def main() -> None:
    """Measure every set and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--record", type=Path, default=RECORD)
    path, rows = parser.parse_args().record, []
    torch.set_num_threads(1)
    for dataset in DATASETS:
        rows.append(measure(dataset, load(dataset)))
        print(rows[-1], flush=True)
        write_text(path, json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
