"""The events task end to end: data, training, scores, own files, and all that can be wrong with them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aaren.engine.loop import fit
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Moment
from aaren.errors import ConfigError
from aaren.events.config import EventNetworkConfig, EventsConfig
from aaren.events.experiment import EventsExperiment
from aaren.events.setting import SETTING

SMALL = EventNetworkConfig(width=16, ff_width=16)
START = Moment(0, 0)


def config(**options: Any) -> EventsConfig:
    given = {"dataset": "hawkes", "max_sequences": 20, "epochs": 2, "network": SMALL, **options}
    return EventsConfig(**given)


def open_experiment(**options: Any) -> EventsExperiment:
    experiment = SETTING.open(config(**options), seed=0)
    assert isinstance(experiment, EventsExperiment)
    return experiment


def write_csv(path: Path, rows: list[tuple[object, ...]], header: str = "sequence,time,mark") -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def some_rows(sequences: int = 10, events: int = 8, step: float = 1.0) -> list[tuple[object, ...]]:
    rng = np.random.default_rng(0)
    return [
        (f"user{i}", round(float(time), 9), ["buy", "look", "leave"][int(rng.integers(3))])
        for i in range(sequences)
        for time in np.cumsum(rng.uniform(0.1, 2.0, events) * step)
    ]


@pytest.mark.parametrize("model", ["aaren", "transformer", "gru", "aaren-decay", "poisson", "renewal"])
def test_every_model_is_trained_and_judged_alike(model: str) -> None:
    experiment = open_experiment(model=model)
    fitted = fit(experiment, seed=0)
    found = experiment.evaluate(fitted.model, "test", START)
    assert set(found) >= {"nll", "nll_unit_gap", "rmse", "rmse_usual", "accuracy", "pit_distance", "pit_9"}
    assert found["gap_to_truth"] > -0.2  # few sequences: chance may favour a model, but not by much
    assert math.isfinite(found["nll"])


def test_a_truth_is_its_own_best_model() -> None:
    experiment = open_experiment(dataset="poisson", model="poisson", max_sequences=200)
    found = experiment.evaluate(experiment.build_model(), "test", START)
    assert found["gap_to_truth"] == pytest.approx(0.0, abs=2e-3)
    assert found["pit_distance"] < 0.03
    renewal = open_experiment(dataset="renewal", model="renewal", max_sequences=200)
    assert renewal.evaluate(renewal.build_model(), "test", START)["gap_to_truth"] == pytest.approx(
        0, abs=2e-3
    )


def test_both_choices_of_weights_stop_by_likelihood() -> None:
    for selection in ("rmse", "nll"):
        plan = open_experiment(selection=selection, patience=7).plan
        assert (plan.selects.metric, plan.watches.metric, plan.patience) == (selection, "nll", 7)
    assert open_experiment(model="poisson").plan.max_updates == 0


def test_losses_are_sums_and_parts_add_up() -> None:
    experiment = open_experiment(batch_size=6)
    batch = next(experiment.batches(0))
    model = experiment.build_model().eval()
    with torch.no_grad():
        whole = experiment.loss(model, batch)
        parts = [
            experiment.loss(model, experiment.training.gather(batch.sequences[[row]].numpy()))
            for row in range(len(batch))
        ]
    torch.testing.assert_close(torch.stack(parts).sum(), whole, rtol=1e-6, atol=0)


def test_weight_decay_is_the_gradient_of_the_published_penalty() -> None:
    experiment = open_experiment()
    batch = next(experiment.batches(0))
    moved = []
    for weight_decay, penalty in ((1e-4, 0.0), (0.0, 1e-4)):
        torch.manual_seed(0)
        model = experiment.build_model().eval()
        optimiser = OptimiserConfig(learning_rate=5e-4, eps=1e-5, weight_decay=weight_decay).build(model)
        for _ in range(3):
            optimiser.zero_grad()
            squares = sum(parameter.double().square().sum() for parameter in model.parameters())
            (experiment.loss(model, batch) + 0.5 * penalty * squares).backward()
            optimiser.step()
        moved.append(model.state_dict())
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-5, atol=1e-6)
    assert EventsConfig(dataset="sin").optimiser.weight_decay == 1e-4


def test_facts_state_unit_ends_and_what_may_be_compared() -> None:
    facts = open_experiment(dataset="sin").facts()
    assert facts["comparable"] == ["nll", "rmse"]
    assert (facts["knows_start"], facts["knows_end"], facts["unit"]) == (True, True, "time units")
    assert facts["padding_share"] < 0.2
    assert facts["train_sequences"] == 12
    assert open_experiment(dataset="hawkes").facts()["comparable"] == []


def test_mean_gaps_as_unit_change_nothing_but_the_start() -> None:
    plain, scaled = open_experiment(), open_experiment(time_scale="mean-gap")
    assert plain.time_scale == 1.0
    assert scaled.time_scale == scaled.mean_gap == plain.parts.train.mean_gap
    assert scaled.build_model().config.time_scale == scaled.mean_gap


def test_training_approaches_the_truth() -> None:
    experiment = open_experiment(
        dataset="renewal",
        max_sequences=60,
        epochs=12,
        selection="nll",
        censoring="none",
        optimiser=OptimiserConfig(learning_rate=5e-3, eps=1e-5),
    )
    fitted = fit(experiment, seed=0)
    assert experiment.evaluate(fitted.model, "test", START)["gap_to_truth"] < 0.1


def test_predictions_hold_gap_forecast_and_level() -> None:
    experiment = open_experiment()
    with torch.no_grad():
        kept = experiment.predictions(experiment.build_model().eval())
    count = experiment.parts.test.num_events - len(experiment.parts.test)
    assert {name: tuple(values.shape) for name, values in kept.items()} == dict.fromkeys(
        ("gap", "mean", "median", "level"), (count,)
    )


def test_cells_tell_clean_rows_apart() -> None:
    assert SETTING.cell(config()) == {"dataset": "hawkes", "model": "aaren"}
    assert SETTING.cell(config(censoring="none"))["rule"] == "clean"


@pytest.mark.parametrize(("step", "words"), [(1e-8, "below 1e-06"), (1e8, r"above 1e\+06")])
def test_absurd_units_are_warned_of_and_cured(tmp_path: Path, step: float, words: str) -> None:
    path = write_csv(tmp_path / "strange.csv", [(name, time * step, 0) for name, time, _ in some_rows()])
    with pytest.warns(UserWarning, match=rf"all gaps are {words}.*--set time_scale=mean-gap"):
        SETTING.open(EventsConfig(data_file=str(path)), seed=0)
    cured = SETTING.open(
        EventsConfig(data_file=str(path), time_scale="mean-gap", epochs=1, network=SMALL), seed=0
    )
    fitted = fit(cured, seed=0)
    found = cured.evaluate(fitted.model, "test", START)
    assert abs(found["nll_unit_gap"]) < 5.0
    assert all(math.isfinite(value) for value in found.values() if value == value)


def test_faults_of_a_config_come_together() -> None:
    with pytest.raises(
        ConfigError, match="name either a dataset or a data_file; batch_size must be at least 1"
    ):
        EventsConfig(batch_size=0)
    with pytest.raises(ConfigError, match="max_sequences must be at least 5"):
        config(max_sequences=2)
    with pytest.raises(ConfigError, match="time_scale must be a positive number or 'mean-gap'; got -1"):
        config(time_scale=-1.0)
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        config(network=EventNetworkConfig(num_heads=3))


def test_real_sets_open_with_their_units_and_marks(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    facts = SETTING.open(EventsConfig(dataset="mimic", time_scale="mean-gap"), seed=0).facts()
    assert (facts["unit"], facts["marks"], facts["comparable"]) == (
        "years",
        75,
        ["nll", "rmse", "accuracy"],
    )
    assert facts["padding_share"] < 0.2
    taxi = SETTING.open(EventsConfig(dataset="taxi-tritpp"), seed=0).facts()
    assert (taxi["knows_end"], taxi["stands_for"]) == (True, "taxi")


@pytest.mark.parametrize("model", ["aaren", "poisson"])
def test_figures_are_the_gaps_of_one_sequence_in_their_bands(model: str) -> None:
    experiment = open_experiment(model=model)
    with torch.no_grad():
        drawn = experiment.figures(experiment.build_model().eval())
    gaps = experiment.parts.test.select(np.array([drawn["sequence"]])).gaps[1:81]
    np.testing.assert_allclose(drawn["gap"], gaps, rtol=1e-3)
    assert len(drawn["low"]) == len(gaps)
    assert all(
        low < middle < high
        for low, middle, high in zip(drawn["low"], drawn["median"], drawn["high"], strict=True)
    )
