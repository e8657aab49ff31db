"""Fit a FeatureClassifier in closed form: kernels and thresholds drawn, heads solved, all of TRAIN used.

Every span of time has a ridge head, fitted to prefixes that are cut at random inside it, and one more has the
complete series. Leave-one-out scores, which ridge regression gives exactly and at no cost, choose each head's
strength, its temperature and the threshold of early stopping, so that no case need be held out; and whether
the heads also weigh the values themselves by their places, as a plain linear model does, and whether the
convolutions also see roots and changes of channels: only where that is better beyond chance.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from aaren.classification.batches import LabelledSeries
from aaren.classification.early_stop import LeftOut
from aaren.classification.random_convolutions import (
    BLOCK_VALUES,
    LARGEST_PLACE,
    MOST_CHANNELS,
    MOST_PLACED,
    POSITIONS,
    TAPS,
    UNIT,
    FeatureClassifier,
    FeatureClassifierConfig,
)
from aaren.errors import unknown_name

Size: TypeAlias = Literal["default", "small"]
SIZES: dict[str, tuple[int, int]] = {  # thresholds per kernel over all dilations, levels
    "default": (30, 16),
    "small": (5, 4),
}
PLANS = SIZES | {"trial": (10, 8)}  # fewer, to choose inputs with
SMALL_TAIL = 3072  # bytes that the samples of a small state may take
SMALL_STATE = 8000  # bytes: a state below this stays below, whatever the values at their places would gain
MOST_DILATIONS = 32
MOST_VALUES = 50_000_000  # that the baseline sees; of longer series it sees every so many steps
MOST_TRIED = 500  # cases on which it is tried whether roots are better
MOST_EXACT = 1000  # cases whose leave-one-out scores are computed; of more, a random part
STRENGTHS = torch.logspace(-1, 5, 13, dtype=torch.float64)
TEMPERATURES = torch.logspace(float(np.log10(0.3)), float(np.log10(30.0)), 40, dtype=torch.float64)
SOFTEN = 0.05  # added to the standard deviation of a feature
MIXES = (0.5, 0.9)  # parts of all variance that the values at their places may have, beside the features
MOST_COLUMNS = 8192  # of these values where there are more cases than MOST_EXACT: weights take their square
ONE_ERROR = 1.0  # standard errors by which further inputs must be better: their choice costs nothing later
SURE = 2.0  # standard errors of the log loss by which something more must be better
FLAT = 4.0  # units that thresholds keep away from 0, where every flat stretch of a series is


def plan_features(
    *,
    num_channels: int,
    num_classes: int,
    lengths: Sequence[int],
    size: str = "default",
    num_spans: int = 10,
    has_roots: bool = False,
    has_changes: bool = False,
) -> FeatureClassifierConfig:
    """Choose dilations and numbers of thresholds for series of these lengths.

    Args:
        num_channels: of a sample.
        num_classes: to tell apart.
        lengths: of the series of training.
        size: "default" or "small".
        num_spans: parts of a series with a head of their own.
        has_roots: whether the convolutions also see the root of every channel.
        has_changes: whether they also see its change since the sample before.

    >>> plan_features(num_channels=1, num_classes=2, lengths=[100], size="small").state_bytes < 8000
    True
    """
    if size not in PLANS:
        raise unknown_name("size", size, SIZES)
    per_kernel, levels = PLANS[size]
    longest, middle = max(lengths), int(np.median(lengths))
    inputs = num_channels * (1 + has_roots + has_changes)
    widest = max(1, (max(middle, TAPS) - 1) // (TAPS - 1))
    if size == "small":
        widest = max(1, min(widest, SMALL_TAIL // (4 * (TAPS - 1) * inputs)))
        levels = min(levels, 64 // inputs)
    grid = np.logspace(0, np.log2(widest), min(per_kernel, MOST_DILATIONS), base=2).astype(int)
    dilations, counts = np.unique(grid, return_counts=True)
    return FeatureClassifierConfig(
        num_channels=num_channels,
        num_classes=num_classes,
        length=longest,
        dilations=tuple(map(int, dilations)),
        num_thresholds=tuple(map(int, counts)),
        num_levels=levels,
        num_spans=min(num_spans, longest - 1),
        has_roots=has_roots,
        has_changes=has_changes,
    )


def choose_features(
    series: LabelledSeries, *, num_classes: int, size: str = "default", seed: int
) -> FeatureClassifierConfig:
    """Plan for these series; roots and changes of channels are inputs where left-out cases are judged better.

    Args:
        series: all cases, padded at the end.
        num_classes: to tell apart.
        size: "default" or "small".
        seed: of the kernels that are tried.
    """

    def make_plan(size: str, has_roots: bool, has_changes: bool) -> FeatureClassifierConfig:
        return plan_features(
            num_channels=series.values.shape[2],
            num_classes=num_classes,
            lengths=series.mask.sum(1).tolist(),
            size=size,
            has_roots=has_roots,
            has_changes=has_changes,
        )

    choices = list(product((False, True), repeat=2))
    if size == "small":
        choices = [choice for choice in choices if make_plan(size, *choice).state_bytes < SMALL_STATE]
    generator = torch.Generator().manual_seed(seed)
    tried = series.select(torch.randperm(len(series), generator=generator)[:MOST_TRIED].sort().values)
    losses = []
    for choice in choices:
        plan = make_plan("small" if size == "small" else "trial", *choice)
        model = draw_kernels(tried, plan, generator=torch.Generator().manual_seed(seed))
        features = pool_all(model, tried, tried.mask.sum(1, keepdim=True))[:, 0]
        head = _fit_head(features, tried.labels, num_classes, torch.arange(len(tried)))
        losses.append(head.losses(tried.labels))
    gains = [sure_gain(losses[0], loss, errors=ONE_ERROR) for loss in losses]
    return make_plan(size, *choices[int(np.argmax(gains))])  # plain unless better by a standard error


def fit_features(
    series: LabelledSeries,
    config: FeatureClassifierConfig,
    *,
    seed: int,
    on_step: Callable[[int, int], None] = lambda *_: None,
) -> tuple[FeatureClassifier, LeftOut]:
    """Fit a model to series at the scale of training.

    Args:
        series: all cases, padded at the end.
        config: see `choose_features`.
        seed: of kernels' channels, thresholds and cuts.
        on_step: called with the progress: parts done, and how many there are.
    """
    generator = torch.Generator().manual_seed(seed)
    model = draw_kernels(series, config, generator=generator)
    lengths, total = series.mask.sum(1), len(series) + config.num_spans + 1
    model.span_ends.copy_(_span_ends(config))
    steps = _cut_prefixes(model.span_ends, lengths, generator)
    features = pool_all(model, series, steps, on_case=lambda done: on_step(done, total))
    part = torch.randperm(len(series), generator=generator)[:MOST_EXACT].sort().values
    values, classes = _values_at_places(model, series), config.num_classes
    mix = 0.0 if values is None else _choose_mix(features[:, -1], values, series.labels, classes, part)
    heads = []
    for number in range(config.num_spans + 1):
        columns = features[:, number]
        if values is not None and mix:
            seen = torch.arange(config.length) < steps[:, number].unsqueeze(1)  # (cases, length)
            columns = torch.cat([columns, (values * seen.unsqueeze(-1)).flatten(1)], dim=1)
        head = _fit_head(columns, series.labels, classes, part, num_pooled=config.num_features, mix=mix)
        model.weight.data[number] = head.weight[:, : config.num_features]
        model.bias.data[number] = head.bias
        heads.append(head)
        on_step(len(series) + number + 1, total)
    if mix:
        model = _with_places(model, torch.cat([head.weight[:, config.num_features :] for head in heads]))
    return model, LeftOut(
        probabilities=torch.stack([head.left_out for head in heads], dim=1),
        steps=steps[part, :-1],
        lengths=lengths[part],
        labels=series.labels[part],
    )


def _span_ends(config: FeatureClassifierConfig) -> Tensor:
    """Return the last step of each span of time."""
    ends = torch.linspace(0, config.length - 1, config.num_spans + 1, dtype=torch.float64)
    return ends.round().long()[1:]


def _cut_prefixes(ends: Tensor, lengths: Tensor, generator: torch.Generator) -> Tensor:
    """Return prefixes of random lengths in every span, and the complete series: (cases, spans + 1)."""
    begins = torch.cat([ends.new_zeros(1), ends[:-1]])[: len(ends)]
    drawn = torch.rand(len(lengths), len(ends), generator=generator)
    cuts = begins + 1 + (drawn * (ends - begins)).long()
    return torch.cat([torch.minimum(cuts, lengths.unsqueeze(1)), lengths.unsqueeze(1)], dim=1)


@torch.no_grad()
def pool_all(
    model: FeatureClassifier,
    series: LabelledSeries,
    steps: Tensor,
    *,
    on_case: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """Return the pooled features (cases, n, features), float32, of prefixes of every case."""
    pooled = torch.empty(*steps.shape, model.config.num_features)
    widest = len(POSITIONS) * max(model.config.num_thresholds)
    size = max(1, BLOCK_VALUES // (series.values.shape[1] * widest))
    for first in range(0, len(series), size):
        part = slice(first, first + size)
        pooled[part] = model.pool(series.values[part], steps[part], mask=series.mask[part]).float()
        on_case(min(len(series), first + size))
    return pooled


def draw_kernels(
    series: LabelledSeries, config: FeatureClassifierConfig, *, generator: torch.Generator
) -> FeatureClassifier:
    """Draw which inputs each kernel sees; take thresholds and levels from what training series give."""
    model = FeatureClassifier(config).requires_grad_(False).eval()
    inputs, lengths = config.num_inputs, series.mask.sum(1)
    if config.has_roots:
        _set_roots(model, series)
    shape = (len(config.dilations), len(POSITIONS))
    most = min(inputs, MOST_CHANNELS)
    counts = (2 ** (torch.rand(shape, generator=generator) * np.log2(most + 1))).long()
    ranks = torch.rand(*shape, inputs, generator=generator).argsort(-1).argsort(-1)
    model.channels.copy_(ranks < counts.unsqueeze(-1))
    cases = torch.randint(len(series), shape, generator=generator)
    if config.has_changes:
        _set_change_gains(model, series)
    units = model._inputs(series.values, None)
    _set_thresholds(model, [[units[case, : lengths[case]] for case in row] for row in cases])
    flat = units[series.mask].double().numpy()  # (steps, inputs)
    shares = (np.arange(config.num_levels) + 0.5) / max(1, config.num_levels)
    if config.num_levels:
        levels = np.quantile(flat, shares, axis=0).T  # (inputs, levels)
        model.levels.copy_(torch.from_numpy(levels).floor() + 0.5)
    return model


def _set_roots(model: FeatureClassifier, series: LabelledSeries) -> None:
    """Take roots of distances from where the smallest series are, at a scale near 1."""
    mask, counts = series.mask.unsqueeze(-1), series.mask.sum(1, keepdim=True)
    values = series.values.double() * mask
    means = values.sum(1) / counts  # (cases, channels)
    variances = ((values - means.unsqueeze(1)).square() * mask).sum(1) / counts
    smallest = torch.where(variances > 0.0, variances, torch.inf).amin(0).clamp(max=1.0)
    weights = 1.0 / torch.maximum(variances, smallest)
    model.pivots.copy_((means * weights).sum(0) / weights.sum(0))
    roots = (values - model.pivots).abs().sqrt().sqrt()[series.mask]
    model.gains.copy_(2.0 ** -roots.square().mean(0).clamp(min=1e-6).sqrt().log2().round())


def _set_change_gains(model: FeatureClassifier, series: LabelledSeries) -> None:
    """Bring changes to a scale near 1."""
    changes = (series.values[:, 1:] - series.values[:, :-1]).double()[series.mask[:, 1:]]
    sizes = changes.square().mean(0).sqrt().clamp(min=1.0 / UNIT, max=1.0)
    model.change_gains.copy_(2.0 ** -sizes.log2().round())


def _set_thresholds(model: FeatureClassifier, cases: Sequence[Sequence[Tensor]]) -> None:
    """Set each kernel's thresholds to quantiles of its responses to one case, (steps, inputs)."""
    config, first = model.config, 0
    golden = (torch.arange(1, config.num_convolved + 1, dtype=torch.float64) * (5**0.5 + 1) / 2) % 1
    for number, (dilation, count) in enumerate(zip(config.dilations, config.num_thresholds, strict=True)):
        reach = (TAPS - 1) * dilation
        for kernel, case in enumerate(cases[number]):
            summed = case @ model.channels[number, kernel]
            padded = torch.cat([summed.new_zeros(reach), summed])
            taps = torch.stack([padded[dilation * tap :][: len(summed)] for tap in range(TAPS)])
            response = model._pattern[kernel] @ taps
            if len(response) > reach + 4:
                response = response[reach:]
            quantiles = torch.quantile(response.double(), golden[first : first + count])
            model.thresholds[first : first + count] = quantiles.floor() + 0.5
            first += count
    model.thresholds[model.thresholds.abs() < FLAT] = FLAT + 0.5


def _values_at_places(model: FeatureClassifier, series: LabelledSeries) -> Tensor | None:
    """Return the rounded values (cases, length, channels), 0 behind a series; None if they are too many."""
    config = model.config
    most = MOST_PLACED if len(series) <= MOST_EXACT else MOST_COLUMNS
    if config.length * config.num_channels > most or series.values.numel() > MOST_VALUES:
        return None
    if config.state_bytes < SMALL_STATE <= replace(config, has_places=True).state_bytes:
        return None
    units = model._units(series.values * series.mask.unsqueeze(-1))
    return units[..., : config.num_channels] / UNIT  # without the roots of channels


def _choose_mix(features: Tensor, values: Tensor, labels: Tensor, num_classes: int, part: Tensor) -> float:
    """Return which part of the variance the values get beside the features: 0 unless more is better."""
    columns, num_pooled = torch.cat([features, values.flatten(1)], dim=1), features.shape[1]
    truth, best, chosen = labels[part], 0.0, 0.0
    without = _fit_head(features, labels, num_classes, part).losses(truth)
    for mix in MIXES:
        found = _fit_head(columns, labels, num_classes, part, num_pooled=num_pooled, mix=mix)
        gain = sure_gain(without, found.losses(truth))
        if gain > best:
            best, chosen = gain, mix
    return chosen


def sure_gain(losses: Tensor, ours: Tensor, *, errors: float = SURE) -> float:
    """Return by how much our losses of the same cases are lower on average: 0 where that may be chance.

    >>> sure_gain(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.5, 2.4]))  # doctest: +ELLIPSIS
    0.533...
    >>> sure_gain(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 2.0, 3.0]))  # one case of three
    0.0
    """
    gains = (losses - ours).double()
    error = float(gains.std()) / len(gains) ** 0.5 if len(gains) > 1 else math.inf
    gain = float(gains.mean())
    return gain if gain > errors * error else 0.0


def _with_places(model: FeatureClassifier, weights: Tensor) -> FeatureClassifier:
    """Return the model with weights (heads * classes, length * channels) of values at their places."""
    config = replace(model.config, has_places=True)
    placed = FeatureClassifier(config).requires_grad_(False).eval()
    placed.load_state_dict(model.state_dict(), strict=False)
    unit = weights.abs().max().clamp(min=1e-30) / LARGEST_PLACE
    placed.places.copy_((weights / unit).round().view(-1, config.length, config.num_channels).transpose(0, 1))
    placed.place_unit.copy_(unit / UNIT)
    return placed


def predict_left_out(series: LabelledSeries, num_classes: int) -> Tensor:
    """Return the class that ridge regression on the values gives each case, left out of the fit, (cases,)."""
    cases, steps, channels = series.values.shape
    every = max(1, cases * steps * channels // MOST_VALUES)
    values = series.values[:, ::every].flatten(1).float()
    return _fit_head(values, series.labels, num_classes, torch.arange(cases)).left_out.argmax(-1)


class _Head(NamedTuple):
    weight: Tensor  # (classes, features)
    bias: Tensor  # (classes,)
    left_out: Tensor  # (part, classes)  probabilities

    def losses(self, truth: Tensor) -> Tensor:
        """Return the log loss of each case left out, (part,)."""
        cases, classes = self.left_out.shape
        right = self.left_out.gather(1, truth.unsqueeze(1)).squeeze(1)
        return -((right * cases + 1.0 / classes) / (cases + 1)).log()  # as `_fit_head`


def _fit_head(
    features: Tensor,
    labels: Tensor,
    num_classes: int,
    part: Tensor,
    *,
    num_pooled: int | None = None,
    mix: float = 0.0,
) -> _Head:
    """Solve for one head; strength and temperature have the least leave-one-out log loss.

    Args:
        features: (cases, columns); those from `num_pooled` on get the part `mix` of all variance.
        labels: (cases,).
        num_classes: of all labels.
        part: the cases whose leave-one-out scores are computed.
        num_pooled: None: all columns are of one kind.
        mix: between 0 and 1.
    """
    mean, deviation = features.mean(0), features.std(0, correction=0)
    scale = torch.where(deviation < 1e-6, 0.0, 1.0 / (deviation + SOFTEN))
    if mix:
        variance = (deviation * scale).square()
        ratio = variance[:num_pooled].sum() / variance[num_pooled:].sum().clamp(min=1e-12)
        scale[:num_pooled] *= (1.0 - mix) ** 0.5
        scale[num_pooled:] *= (mix * ratio).sqrt()
    targets = 2.0 * torch.nn.functional.one_hot(labels, num_classes).double() - 1.0
    centre = targets.mean(0)
    scaled = (features - mean) * scale
    some, wanted, truth = scaled[part], (targets - centre)[part], labels[part]
    cases = len(part)
    values, vectors = torch.linalg.eigh((some @ some.T).double())
    values = values.clamp(min=0)
    turned = vectors.T @ wanted
    strength, temperature, left_out = _choose_strength(values, vectors, wanted, targets[part], truth)
    if cases == len(features):
        weight = some.double().T @ (vectors @ (turned / (values + strength).unsqueeze(1)))
    else:
        gram = (scaled.T @ scaled).double()
        gram.diagonal().add_(strength * len(features) / cases)
        factor = torch.linalg.cholesky(gram)
        weight = torch.cholesky_solve((scaled.T @ (targets - centre).float()).double(), factor)
    weight = weight * scale.unsqueeze(1).double()  # (features, classes)
    bias = centre - mean.double() @ weight
    return _Head((temperature * weight.T).float(), (temperature * bias).float(), left_out)


def _choose_strength(
    values: Tensor, vectors: Tensor, wanted: Tensor, targets: Tensor, truth: Tensor
) -> tuple[float, float, Tensor]:
    """Return strength and temperature of the least leave-one-out log loss, and the probabilities there.

    Args:
        values: eigenvalues of the Gram matrix of the cases, (cases,).
        vectors: its eigenvectors.
        wanted: centred targets, (cases, classes).
        targets: 1 for a case's class, -1 for others.
        truth: the classes, (cases,).
    """
    cases, turned = len(truth), vectors.T @ wanted
    best = float("inf")
    strength = temperature = 1.0
    left_out = wanted
    for candidate in STRENGTHS.tolist():
        shrunk = values / (values + candidate)
        own = (vectors * vectors) @ shrunk + 1.0 / cases
        residual = (wanted - vectors @ (shrunk.unsqueeze(1) * turned)) / (1.0 - own).clamp(
            min=1e-9
        ).unsqueeze(1)
        scores = targets - residual
        probabilities = (TEMPERATURES.view(-1, 1, 1) * scores).softmax(-1)  # (temperatures, cases, classes)
        right = probabilities[:, torch.arange(len(truth)), truth]
        # One further case of chance keeps the temperature finite.
        losses = -((right * cases + 1.0 / targets.shape[1]) / (cases + 1)).log().mean(-1)
        place = int(losses.argmin())
        if float(losses[place]) < best:
            best, strength, temperature = float(losses[place]), candidate, float(TEMPERATURES[place])
            left_out = probabilities[place]
    return strength, temperature, left_out
