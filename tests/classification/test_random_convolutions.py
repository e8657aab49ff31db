"""The streaming features: one step at a time or all at once, the same decisions and the same sums."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aaren.classification import (
    FeatureClassifier,
    FeatureClassifierConfig,
    FeatureClassifierState,
    ridge_classifier,
)
from aaren.classification.batches import LabelledSeries
from aaren.classification.random_convolutions import LARGEST, UNIT
from aaren.classification.ridge_classifier import LeftOut, _with_places, fit_features, plan_features
from aaren.errors import ConfigError, ShapeError
from aaren.nn.state import flatten
from aaren.ops import scan_attention
from aaren.ops.cpu import library
from aaren.stream.saved import load_model, save_model

CASES, LENGTH, CHANNELS = 24, 30, 3


def series(generator: torch.Generator) -> LabelledSeries:
    """Slow and fast waves of unequal lengths, whose values often repeat and tie."""
    labels = torch.arange(CASES) % 2
    start = 6.0 * torch.rand(CASES, 1, CHANNELS, generator=generator)
    speed = torch.where(labels == 0, 0.3, 0.9).view(-1, 1, 1)
    values = torch.sin(start + speed * torch.arange(LENGTH).view(1, -1, 1)).mul(4).round() / 4
    lengths = torch.randint(20, LENGTH + 1, (CASES,), generator=generator)
    mask = torch.arange(LENGTH) < lengths.unsqueeze(1)
    return LabelledSeries(values=values * mask.unsqueeze(-1), mask=mask, labels=labels)


@pytest.fixture(scope="module")
def data() -> LabelledSeries:
    return series(torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def fitted_models(data: LabelledSeries) -> dict[str, FeatureClassifier]:
    lengths = data.mask.sum(1).tolist()
    configs = {
        size: plan_features(num_channels=CHANNELS, num_classes=2, lengths=lengths, size=size)
        for size in ("default", "small")
    }
    configs["roots"] = plan_features(
        num_channels=CHANNELS, num_classes=2, lengths=lengths, size="small", has_roots=True, has_changes=True
    )
    models = {size: fit_features(data, config, seed=0)[0] for size, config in configs.items()}
    assert not any(model.config.has_places for model in models.values())  # the waves begin anywhere
    small = models["small"]
    shape = (small.bias.numel(), small.config.length * CHANNELS)
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    return models | {"places": _with_places(small, drawn)}


@pytest.fixture(params=["default", "small", "roots", "places"])
def model(request: pytest.FixtureRequest, fitted_models: dict[str, FeatureClassifier]) -> FeatureClassifier:
    return copy.deepcopy(fitted_models[request.param])


@pytest.fixture
def large(fitted_models: dict[str, FeatureClassifier]) -> FeatureClassifier:
    return copy.deepcopy(fitted_models["default"])


def are_equal(one: object, other: object) -> bool:
    pairs = zip(flatten(one), flatten(other), strict=True)
    return all(name == same and torch.equal(a, b) for (name, a), (same, b) in pairs)


def fold_steps(model: FeatureClassifier, values: Tensor, mask: Tensor) -> tuple[Tensor, object]:
    state, scores = model.init_state(len(values)), []
    for step in range(values.shape[1]):
        score, state = model.step(values[:, step], state, mask=mask[:, step])
        scores.append(score)
    return torch.stack(scores, dim=1), state


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_states_of_steps_and_of_whole_series_are_equal_bit_for_bit(
    model: FeatureClassifier, data: LabelledSeries, dtype: torch.dtype
) -> None:
    model = model.to(dtype)
    stepped, last = fold_steps(model, data.values, data.mask)
    whole, final = model.score_steps(data.values.to(dtype), mask=data.mask)
    assert are_equal(last, final)
    torch.testing.assert_close(stepped, whole, rtol=1e-4, atol=1e-4)
    lengths = data.mask.sum(1)
    pooled = model.pool(data.values, lengths.unsqueeze(1), mask=data.mask).squeeze(1)
    assert torch.equal(pooled, model._pooled(final))
    torch.testing.assert_close(model.finish(final), model(data.values, mask=data.mask), rtol=1e-4, atol=1e-4)
    halves = torch.stack([lengths // 2, lengths], dim=1)
    asked = model.score_prefixes(data.values, halves, mask=data.mask)
    torch.testing.assert_close(
        asked, whole[torch.arange(CASES).unsqueeze(1), halves - 1], rtol=1e-4, atol=1e-4
    )


def test_values_at_a_threshold_are_decided_alike_in_any_batch(
    large: FeatureClassifier, data: LabelledSeries
) -> None:
    model = large
    model.thresholds.copy_(model.thresholds.floor())  # where responses lie
    model.levels.copy_((model.levels / UNIT * 4).round() / 4 * UNIT)
    scaled = data.values * 3.1415926
    alone = torch.cat([model.score_steps(case.unsqueeze(0))[1].total for case in scaled])
    together = model.score_steps(scaled)[1].total
    _, stepped = fold_steps(model, scaled, torch.ones(CASES, LENGTH, dtype=torch.bool))
    assert torch.equal(alone, together)
    assert torch.equal(stepped.total, together)  # type: ignore[attr-defined]


def test_the_pooling_is_attention_with_equal_scores(large: FeatureClassifier, data: LabelledSeries) -> None:
    model = large
    units = model._inputs(data.values, None)
    window = model._before(units, None)
    values = torch.cat([block for _, block in model._values(window, 0, LENGTH)], dim=-1).double()
    outputs, _ = scan_attention(
        torch.zeros(*values.shape[:2], 1).double(), values.unsqueeze(2), mask=data.mask
    )
    _, state = model.score_steps(data.values, mask=data.mask)
    torch.testing.assert_close(model._pooled(state), outputs[:, -1].flatten(1))


def test_a_split_and_holes_change_nothing(model: FeatureClassifier, data: LabelledSeries) -> None:
    whole, final = model.score_steps(data.values)
    first, state = model.score_steps(data.values[:, :13])
    second, last = model.score_steps(data.values[:, 13:], state)
    assert are_equal(last, final)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    holes = torch.arange(LENGTH) % 3 != 1
    spoilt = torch.where(holes.view(1, -1, 1), data.values, torch.nan)
    skipped, state = model.score_steps(spoilt, mask=holes.expand(CASES, -1))
    kept, last = model.score_steps(data.values[:, holes])
    assert are_equal(last, state)
    torch.testing.assert_close(skipped[:, holes], kept)
    stepped, last = fold_steps(model, spoilt, holes.expand(CASES, -1))  # type: ignore[assignment]
    assert are_equal(last, state)
    torch.testing.assert_close(stepped, skipped, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not library.is_available(), reason="no compiled library")
def test_the_native_engine_has_the_states_of_torch_bit_for_bit(
    model: FeatureClassifier, data: LabelledSeries
) -> None:
    sessions = [model.stream(CASES, engine=engine) for engine in ("native", "torch")]
    for step in range(LENGTH):
        given = {"mask": data.mask[:, step]}
        native, wanted = (session.push(data.values[:, step], **given) for session in sessions)
        torch.testing.assert_close(native, wanted, rtol=1e-4, atol=1e-6)
    assert are_equal(*(session.state for session in sessions))
    alone = [model.stream(engine=engine) for engine in ("native", "torch")]
    for value in data.values[0]:
        native, wanted = (session.push(value) for session in alone)
    torch.testing.assert_close(native, wanted, rtol=1e-4, atol=1e-6)


def test_memory_is_constant_and_as_the_config_says(model: FeatureClassifier, data: LabelledSeries) -> None:
    assert model.init_state(1).nbytes == model.config.state_bytes
    _, state = model.score_steps(data.values[:1].repeat(1, 20, 1))
    assert state.nbytes == model.config.state_bytes


def test_values_at_places_stand_beside_roots_of_channels() -> None:
    hours, labels = torch.arange(24), torch.arange(60) % 3
    peaks = torch.exp(-((hours - 7 - 4 * labels.unsqueeze(1)).square()) / 8.0).unsqueeze(-1)
    noise = 0.3 * torch.randn(peaks.shape, generator=torch.Generator().manual_seed(0))
    data = LabelledSeries(values=peaks + noise, mask=torch.ones(60, 24, dtype=torch.bool), labels=labels)
    plan = plan_features(num_channels=1, num_classes=3, lengths=[24] * 60, size="default", has_roots=True)
    model, left_out = fit_features(data, plan, seed=0)
    assert model.config.has_places
    assert model.places.shape[-1] == 1
    assert (left_out.probabilities[:, -1].argmax(-1) == left_out.labels).float().mean() > 0.9


@pytest.mark.parametrize("channels", [1, 3, 12, 61])
@pytest.mark.parametrize("length", [5, 100, 1751])
@pytest.mark.parametrize("has_roots", [False, True])
def test_a_small_state_is_below_8_kilobytes(channels: int, length: int, has_roots: bool) -> None:
    config = plan_features(
        num_channels=channels,
        num_classes=9,
        lengths=[length],
        size="small",
        has_roots=has_roots,
    )
    assert config.state_bytes < 8000


def test_the_largest_sums_are_exact_in_float32() -> None:
    config = FeatureClassifierConfig(
        num_channels=9, num_classes=2, length=4096, dilations=(1,), num_thresholds=(1,)
    )
    assert 9 * 12 * LARGEST * UNIT < 2**24
    model = FeatureClassifier(config)
    values = torch.full((1, 3000, 9), 1e9)
    values[:, ::2] *= -1.0
    _, state = model.score_steps(values)
    assert torch.equal(model.pool(values, torch.tensor([[3000]])).squeeze(1), model._pooled(state))


def test_sums_of_values_at_their_places_are_exact() -> None:
    config = FeatureClassifierConfig(
        num_channels=2, num_classes=2, length=500, dilations=(1,), num_thresholds=(1,), num_spans=1
    )
    weights = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    model = _with_places(FeatureClassifier(config), weights)
    values = torch.randn(1, 600, 2, generator=torch.Generator().manual_seed(1))
    _, state = model.score_steps(values)
    wanted = weights.double() @ (model._units(values)[0, :500] / UNIT).flatten().double()
    torch.testing.assert_close(state.placed[0][0] * model.place_unit, wanted, rtol=1e-4, atol=1e-3)
    assert torch.equal(state.placed[0], state.placed[0].round())
    assert torch.equal(model._place_prefixes(values, torch.tensor([[600]]), None)[0][:, 0], state.placed[0])


def test_too_many_values_for_too_many_cases_are_left_out(
    data: LabelledSeries, large: FeatureClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of more cases than can be left out in turn take memory in the square of the columns."""
    assert ridge_classifier._values_at_places(large, data) is not None
    monkeypatch.setattr(ridge_classifier, "MOST_EXACT", CASES - 1)
    assert ridge_classifier._values_at_places(large, data) is not None
    monkeypatch.setattr(ridge_classifier, "MOST_COLUMNS", 20 * CHANNELS)
    assert ridge_classifier._values_at_places(large, data) is None


def test_causality(model: FeatureClassifier, data: LabelledSeries) -> None:
    before, _ = model.score_steps(data.values)
    changed = data.values.clone()
    changed[:, 17:] += 1.0
    after, _ = model.score_steps(changed)
    assert torch.equal(before[:, :17], after[:, :17])


def test_saved_models_and_states_come_back(
    model: FeatureClassifier, data: LabelledSeries, tmp_path: Path
) -> None:
    again = load_model(save_model(model, tmp_path / "model"))
    assert torch.equal(again(data.values, mask=data.mask), model(data.values, mask=data.mask))
    session = model.stream()
    for row in data.values[0, :9]:
        session.push(row)
    other = again.stream()  # type: ignore[operator]
    other.restore(session.to_bytes())
    assert torch.equal(other.push(data.values[0, 9]), session.push(data.values[0, 9]))


def test_the_step_can_be_traced(model: FeatureClassifier, data: LabelledSeries) -> None:
    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, row: Tensor, state: FeatureClassifierState) -> tuple[Tensor, object]:
            return self.model.step(row, state)

    state = traced = model.init_state(1)
    exported = torch.export.export(Step(), (data.values[:1, 0], state)).module()
    for row in data.values[0, :12]:
        scores, state = model.step(row.unsqueeze(0), state)
        same, traced = exported(row.unsqueeze(0), traced)
        assert are_equal(state, traced)
        torch.testing.assert_close(same, scores)


def test_cases_left_out_choose_when_to_stop() -> None:
    probabilities = torch.tensor(
        [
            [[0.95, 0.05], [0.99, 0.01], [0.99, 0.01]],
            [[0.6, 0.4], [0.05, 0.95], [0.05, 0.95]],
            [[0.55, 0.45], [0.4, 0.6], [0.1, 0.9]],
            [[0.9, 0.1], [0.97, 0.03], [0.98, 0.02]],
        ]
    ).repeat(50, 1, 1)
    left_out = LeftOut(
        probabilities=probabilities,
        steps=torch.tensor([[5, 10]]).expand(200, -1),
        lengths=torch.full((200,), 20),
        labels=torch.tensor([0, 1, 1, 0]).repeat(50),
    )
    stop = left_out.choose(0.02)
    assert stop.accuracy == stop.full_accuracy == 1.0
    assert stop == (0.99, 1.0, 1.0, 0.875)  # never below the accuracy of waiting, and 0.99 at most
    curve = left_out.curve([0.5, 0.7, 1.01])
    assert [row.accuracy for row in curve] == [0.5, 1.0, 1.0]
    assert curve[-1].share_seen == 1.0


def test_what_cannot_be_is_said(model: FeatureClassifier) -> None:
    with pytest.raises(ShapeError, match=r"values must be \(b, t, 3\)"):
        model(torch.zeros(2, 5, 2))
    with pytest.raises(ConfigError, match="one number per dilation; got 1 for 2 dilations"):
        FeatureClassifierConfig(
            num_channels=1, num_classes=2, length=9, dilations=(1, 2), num_thresholds=(1,)
        )
    with pytest.raises(ConfigError, match="has_places takes at most 65,536 values of a series"):
        replace(model.config, has_places=True, length=1 << 16)
    with pytest.raises(ConfigError, match="unknown size 'tiny'"):
        plan_features(num_channels=1, num_classes=2, lengths=[9], size="tiny")
