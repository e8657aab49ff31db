"""The events task end to end: data, training, scores, own files, and all that can be wrong with them."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aaren.data.event_files import write_npz
from aaren.data.events import generate
from aaren.errors import ConfigError, DataError
from aaren.presets import make_run
from aaren.tasks.event_config import EventNetworkConfig, EventsConfig, OwnEventsConfig
from aaren.tasks.events import TASK, EventsExperiment, open_events
from aaren.tasks.optimiser import OptimiserConfig
from aaren.tasks.plan import Moment
from aaren.train.loop import fit
from aaren.train.run import train
from aaren.train.use import evaluate_run, predict_run

SMALL = EventNetworkConfig(width=16, ff_width=16)
START = Moment(0, 0)


def config(**options: Any) -> EventsConfig:
    given = {"dataset": "hawkes", "max_sequences": 20, "epochs": 2, "network": SMALL, **options}
    return EventsConfig(**given)


def open_experiment(**options: Any) -> EventsExperiment:
    experiment = TASK.open(config(**options), seed=0)
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
    assert experiment.weight(batch) == 1.0


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
    assert TASK.cell(config()) == {"dataset": "hawkes", "model": "aaren"}
    assert TASK.cell(config(censoring="none"))["rule"] == "clean"


def test_own_files_are_trained_scored_and_spoken_about(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "visits.csv", some_rows())
    assignments = ["epochs=2", "width=16", "ff_width=16", "own.unit=hours"]
    run = make_run("events", data_file=str(path), profile="cpu", assignments=assignments)
    record = train(run, tmp_path / "run")
    assert record.facts["unit"] == "hours"
    assert record.facts["marks"] == 3
    assert math.isfinite(record.metric("test.accuracy"))
    _, again = evaluate_run(tmp_path / "run")
    assert again["nll"] == pytest.approx(record.metric("test.nll"))
    new = write_csv(
        tmp_path / "new.csv",
        [
            ("zoe", 1.0, "look"),
            ("adam", 5.0, "buy"),
            ("zoe", 2.5, "buy"),
            ("adam", 5.5, "look"),
            ("zoe", 3.0, "leave"),
        ],
    )
    predict_run(tmp_path / "run", source=new, target=tmp_path / "next.csv")
    with (tmp_path / "next.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["sequence"] for row in rows] == ["zoe", "adam"]
    assert [float(row["last_time"]) for row in rows] == [3.0, 5.5]
    for row in rows:
        low, middle, high = (float(row[f"next_time_q{level}"]) for level in ("05", "50", "95"))
        assert float(row["last_time"]) < low < middle < high
        assert row["mark"] in ("buy", "look", "leave")
        assert 1 / 3 <= float(row["mark_probability"]) <= 1.0


def test_predicting_refuses_kinds_it_does_not_know(tmp_path: Path) -> None:
    rows = [(name, time, int(time * 7) % 2) for name, time, _ in some_rows()]
    path = write_csv(tmp_path / "numbers.csv", rows)
    run = make_run("events", data_file=str(path), model="renewal")
    train(run, tmp_path / "run")
    new = write_csv(tmp_path / "new.csv", [("a", 1.0, 0), ("a", 2.0, 2)])
    with pytest.raises(DataError, match=r"new.csv, line 3: mark 2 is outside 0..1"):
        predict_run(tmp_path / "run", source=new, target=tmp_path / "next.csv")
    records = tmp_path / "new.json"
    records.write_text(json.dumps([{"time_since_start": [0.0, 1.0], "type_event": [0, 4], "dim_process": 5}]))
    with pytest.raises(DataError, match=r"marks go up to 4, but the run knows 0..1"):
        predict_run(tmp_path / "run", source=records, target=tmp_path / "next.csv")


def test_easytpp_records_and_npz_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    record = {"time_since_start": [0.0, 1.0, 2.5], "type_event": [0, 1, 0], "dim_process": 2}
    path.write_text(json.dumps([record] * 6))
    events = open_events(EventsConfig(data_file=str(path)))
    assert (len(events), events.num_marks) == (6, 2)
    packed = write_npz(tmp_path / "packed.npz", generate("hawkes", count=6))
    assert open_events(EventsConfig(data_file=str(packed))).observed_until is not None


def test_a_known_window_of_observation_is_used(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "visits.csv", some_rows())
    own = OwnEventsConfig(observed_from=0.0, observed_until=100.0)
    events = open_events(EventsConfig(data_file=str(path), own=own))
    assert events.final_gaps is not None
    assert events.gaps[0] > 0.0
    with pytest.raises(DataError, match=r"has an event at .* outside its observed_until = 1"):
        open_events(EventsConfig(data_file=str(path), own=OwnEventsConfig(observed_until=1.0)))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("a", 2.0, 0), ("a", 1.0, 0)], r"line 3: time 1 follows 2: a negative gap. Sort by time"),
        ([("a", 1.0, 0), ("a", 1.0, 0)], r"line 3: time 1 occurs twice.*drop_duplicates=True"),
        ([("a", 1.0, 0), ("a", "nan", 0)], r"line 3: expected a number in column 'time'"),
        ([("a", 1.0, 0), ("a", 2.0, -1)], r"line 3: mark -1 is outside"),
        ([("a", 1.0, 0), ("b", 1.0, 0), ("b", 2.0, 0)], r"line 2: sequence 'a' has one event"),
        ([], "the table has no rows"),
    ],
)
def test_bad_tables_are_told_by_line(tmp_path: Path, rows: list[tuple[object, ...]], words: str) -> None:
    path = write_csv(tmp_path / "bad.csv", rows)
    with pytest.raises(DataError, match=words):
        open_events(EventsConfig(data_file=str(path)))


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("")
    with pytest.raises(DataError, match="the file is empty"):
        open_events(EventsConfig(data_file=str(path)))


def test_what_can_be_mended_is_mended_on_request(tmp_path: Path) -> None:
    rows = [("a", 2.0, 0), ("a", 1.0, 0), ("a", 2.0, 1), ("b", 1.0, 0)]
    path = write_csv(tmp_path / "mixed.csv", rows)
    own = OwnEventsConfig(sort=True, drop_duplicates=True, drop_single=True)
    events = open_events(EventsConfig(data_file=str(path), own=own))
    assert events.times.tolist() == [1.0, 2.0]


def test_single_events_in_arrays_are_refused_or_left_out(tmp_path: Path) -> None:
    from aaren.data.event_sequences import EventSequences

    path = write_npz(tmp_path / "single.npz", EventSequences.from_lists([[1.0, 2.0], [1.0]]))
    with pytest.raises(DataError, match=r"1 sequences have one event.*number 1.*own.drop_single=true"):
        open_events(EventsConfig(data_file=str(path)))
    own = OwnEventsConfig(drop_single=True)
    assert len(open_events(EventsConfig(data_file=str(path), own=own))) == 1


@pytest.mark.parametrize(("step", "words"), [(1e-8, "below 1e-06"), (1e8, r"above 1e\+06")])
def test_absurd_units_are_warned_of_and_cured(tmp_path: Path, step: float, words: str) -> None:
    path = write_csv(tmp_path / "strange.csv", [(name, time * step, 0) for name, time, _ in some_rows()])
    with pytest.warns(UserWarning, match=rf"all gaps are {words}.*--set time_scale=mean-gap"):
        TASK.open(EventsConfig(data_file=str(path)), seed=0)
    cured = TASK.open(
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
    facts = TASK.open(EventsConfig(dataset="mimic", time_scale="mean-gap"), seed=0).facts()
    assert (facts["unit"], facts["marks"], facts["comparable"]) == ("years", 75, ["accuracy"])
    assert facts["padding_share"] < 0.2
    taxi = TASK.open(EventsConfig(dataset="taxi-tritpp"), seed=0).facts()
    assert (taxi["knows_end"], taxi["stands_for"]) == (True, "taxi")
