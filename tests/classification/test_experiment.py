import csv
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aaren.classification.baselines import ReferenceClassifier
from aaren.classification.config import ClassificationConfig, NetworkConfig
from aaren.classification.experiment import ClassificationExperiment, accuracy_by_fraction, curve_of
from aaren.classification.model import Classifier
from aaren.classification.setting import SETTING
from aaren.engine.loop import evaluate, fit
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Moment
from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.engine.setting import find_setting
from aaren.engine.use import predict_run
from aaren.errors import ConfigError, DataError, ShapeError
from aaren.stream.saved import load_model

TINY = NetworkConfig(width=8, num_heads=2, ff_width=16, num_layers=1)
NOW = Moment(0, 0)
HEADER = "@problemName waves\n@timeStamps false\n@classLabel true slow fast odd\n@data\n"


@pytest.fixture(autouse=True)
def _no_real_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AAREN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def case(label: str, number: int, *, length: int = 0, channels: int = 2) -> str:
    """A slow or fast wave; lengths 10 to 14."""
    random = np.random.default_rng(number)
    steps = np.arange(length or 10 + number % 5)
    speed = 0.4 if label == "slow" else 1.3
    rows = [10.0 + 3.0 * np.sin(speed * steps + random.uniform(0.0, 6.0)) for _ in range(channels)]
    return ":".join(",".join(f"{value:.4f}" for value in row) for row in rows) + f":{label}\n"


def write(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text(HEADER + "".join(lines))
    return path


@pytest.fixture
def waves(tmp_path: Path) -> Path:
    """Files of 40 training and 20 test cases; the path of the first."""
    labels = ["slow", "fast"]
    write(tmp_path, "waves_TEST.ts", [case(labels[n % 2], 100 + n) for n in range(20)])
    return write(tmp_path, "waves_TRAIN.ts", [case(labels[n % 2], n) for n in range(40)])


def config(path: Path, **options: Any) -> ClassificationConfig:
    return ClassificationConfig(**{"data_file": str(path), "network": TINY, **options})


def opened(path: Path, *, seed: int = 1, **options: Any) -> ClassificationExperiment:
    return SETTING.open(config(path, **options), seed=seed)


def test_the_published_plan() -> None:
    pytest.importorskip("aeon")
    experiment = SETTING.open(ClassificationConfig(dataset="JapaneseVowels"), seed=0)
    plan = experiment.plan
    assert plan.updates_per_epoch == plan.evaluate_every == 17  # 270 cases, the last 14 are not dropped
    assert plan.max_updates == 17 * 25  # of 100 epochs; then the rate is below the last digit of float32
    assert (plan.patience, plan.clip_norm, plan.selects.goal, plan.selects.ties) == (10, 4.0, "max", True)
    assert [plan.schedule(Moment(0, epoch)) for epoch in (0, 4, 5, 9, 10)] == [1, 1, 2**-4, 2**-4, 2**-9]
    model = experiment.build_model()
    assert sum(parameter.numel() for parameter in model.parameters()) == 436_233 + 384
    optimiser = experiment.build_optimiser(model)
    assert type(optimiser) is torch.optim.RAdam
    assert optimiser.param_groups[0]["lr"] == 1e-3
    assert dict(experiment.facts())["epoch_chosen_by"] == "TEST"


def test_the_two_models_differ_in_the_mixer_alone(waves: Path) -> None:
    ours, theirs = (opened(waves, model=name).build_model() for name in ("aaren", "transformer"))
    assert isinstance(ours, Classifier)
    assert isinstance(theirs, Classifier)
    differing = [n for n in ours.config.__slots__ if getattr(ours.config, n) != getattr(theirs.config, n)]
    assert differing == ["mixer"]


def test_nothing_would_change_after_the_last_planned_epoch(waves: Path) -> None:
    experiment = opened(waves)
    planned = experiment.plan.max_updates
    experiment.plan = replace(experiment.plan, max_updates=2 * planned, patience=None)
    curve = fit(experiment, seed=0).status.curve
    before = next(look["validation"] for look in curve if look["update"] == planned)
    after = [look["validation"] for look in curve if look["update"] > planned]
    assert [look["accuracy"] for look in after] == [before["accuracy"]] * 25
    assert [look["loss"] for look in after] == pytest.approx([before["loss"]] * 25, rel=1e-6)


def test_a_constant_rate_has_all_its_epochs(waves: Path) -> None:
    plan = opened(waves, schedule="constant").plan
    assert plan.max_updates == 100 * plan.updates_per_epoch


def test_under_the_protocol_test_chooses_the_epoch(waves: Path) -> None:
    experiment = opened(waves, epochs=3)
    assert experiment.parts.validation is experiment.parts.test
    assert len(experiment.parts.train) == 40
    fitted = fit(experiment, seed=0)
    best = max(look["validation"]["accuracy"] for look in fitted.status.curve)
    assert evaluate(experiment, fitted.model, "test", NOW)["accuracy"] == best


def test_under_the_clean_rule_a_part_of_train_chooses(waves: Path) -> None:
    experiment = opened(waves, rule="clean", standardise="train")
    parts = experiment.parts
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (32, 8, 20)
    assert torch.bincount(parts.validation.labels).tolist() == [4, 4]
    assert dict(experiment.facts())["epoch_chosen_by"] == "held-out part of TRAIN"
    assert dict(experiment.facts())["tested_on"] == "TEST"
    others = opened(waves, rule="clean", standardise="train", seed=2).parts
    assert not torch.equal(parts.validation.values, others.validation.values)
    together = torch.cat([parts.train.values, parts.validation.values]).sum()
    torch.testing.assert_close(together, torch.cat([others.train.values, others.validation.values]).sum())


def test_without_a_test_file_a_part_of_train_is_tested_and_called_so(waves: Path) -> None:
    waves.with_name("waves_TEST.ts").unlink()
    one, two = (opened(waves, rule="clean", standardise="train", seed=seed) for seed in (1, 2))
    assert (len(one.parts.train), len(one.parts.validation), len(one.parts.test)) == (26, 6, 8)
    assert torch.equal(one.parts.test.values, two.parts.test.values)  # the same for all seeds
    assert dict(one.facts())["tested_on"] == "held-out part of TRAIN"
    assert one.parts.mean.tolist() == two.parts.mean.tolist()


def test_training_learns(waves: Path) -> None:
    steady = {"schedule": "constant", "optimiser": OptimiserConfig(name="adam", learning_rate=1e-2)}
    experiment = opened(waves, epochs=15, standardise="train", model="aaren-causal", **steady)
    fitted = fit(experiment, seed=0)
    found = evaluate(experiment, fitted.model, "test", NOW)
    assert found["accuracy"] >= 0.8
    curve = curve_of(found)
    assert [fraction for fraction, _ in curve] == [round(0.05 * step, 2) for step in range(1, 21)]
    assert curve[-1][1] == found["accuracy"]


@pytest.mark.parametrize("model", ["aaren", "transformer", "aaren-causal", "transformer-causal"])
def test_an_epoch_is_trained_and_scored(model: str, waves: Path) -> None:
    experiment = opened(waves, model=model, standardise="train", epochs=1)
    fitted = fit(experiment, seed=0)
    said = experiment.predictions(fitted.model)
    assert said["scores"].shape == (20, 2)
    assert said["lengths"].min() >= 10


def test_earliness_is_that_of_the_prefixes(waves: Path) -> None:
    for model_name in ("aaren", "aaren-causal"):
        experiment = opened(waves, model=model_name, standardise="train")
        model, test = experiment.build_model().eval(), experiment.parts.test
        curve = accuracy_by_fraction(model, test, [0.5, 1.0])
        right = []
        for values, mask, label in zip(test.values, test.mask, test.labels, strict=True):
            steps = -(-int(mask.sum()) // 2)
            right.append(int(model(values[None, :steps]).argmax()) == int(label))
        assert curve[0.5] == np.mean(right)
        scores = experiment.score(model, test)
        assert curve[1.0] == (scores.argmax(-1) == test.labels).double().mean()


def test_a_session_ends_in_the_batch_answer_of_the_task(waves: Path) -> None:
    experiment = opened(waves, model="aaren-causal", standardise="train")
    model, test = experiment.build_model().eval(), experiment.parts.test
    assert isinstance(model, Classifier)
    scores = experiment.score(model, test).softmax(-1)
    session = model.stream()
    for row in test.values[0, : int(test.mask[0].sum())]:
        answer = session.push(row)
    torch.testing.assert_close(answer, scores[0].detach(), rtol=1e-5, atol=1e-6)


def test_the_majority_is_a_model_too(waves: Path) -> None:
    experiment = opened(waves, model="majority")
    fitted = fit(experiment, seed=0)
    assert isinstance(fitted.model, ReferenceClassifier)
    assert dict(evaluate(experiment, fitted.model, "test", NOW)) == {"accuracy": 0.5}
    assert fitted.status.update == 0
    assert "nothing is trained" in str(experiment.facts()["epoch_chosen_by"])


@pytest.mark.long  # the first time numba compiles for a minute
@pytest.mark.parametrize("model", ["dtw", "minirocket"])
def test_references_from_aeon(model: str, waves: Path, tmp_path: Path) -> None:
    pytest.importorskip("aeon")
    run = make_run("classification", data_file=str(waves), model=model, profile="smoke")
    record = train(run, tmp_path / "run")
    assert record.metric("test.accuracy") >= 0.7
    assert record.updates == 0


@pytest.mark.parametrize("model", ["aaren", "aaren-causal"])
def test_a_run_from_file_to_prediction(model: str, waves: Path, tmp_path: Path) -> None:
    run = make_run("classification", data_file=str(waves), model=model, profile="smoke")
    record = train(run, tmp_path / "run")
    assert record.cell == {
        "dataset": "waves_TRAIN",
        "model": model,
        "rule": "clean",
        "recipe": "radam-halving",
    }
    assert sorted(record.data) == ["waves_TEST.ts", "waves_TRAIN.ts"]
    assert record.metrics["test"]["accuracy_at_1.00"] == record.metric("test.accuracy")
    assert isinstance(load_model(tmp_path / "run" / "model"), Classifier)
    target = tmp_path / "classes.csv"
    predict_run(tmp_path / "run", source=waves.with_name("waves_TEST.ts"), target=target)
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert len(rows) == 20
    assert rows[3]["case"] == "3"
    shares = {row["class"]: float(row[f"probability of {row['class']}"]) for row in rows}
    assert all(share >= 0.5 for share in shares.values())
    right = [row["class"] == ("slow" if number % 2 == 0 else "fast") for number, row in enumerate(rows)]
    assert np.mean(right) == pytest.approx(record.metric("test.accuracy"))  # the same scale: TRAIN's


def test_new_data_with_other_channels_or_too_long_is_refused(waves: Path, tmp_path: Path) -> None:
    write(waves.parent, "waves_TEST.ts", [case("slow", 0, length=16)])  # the longest need not be of TRAIN
    too_long = (
        r"new\.ts, case 0: the flattened head has weights for 16 steps, the length it was built for; this "
        r"series has 99\. Cut it, or train with head='pooled' \(--set head=pooled\), which takes any length\."
    )
    run = make_run("classification", data_file=str(waves), model="aaren-causal", profile="smoke")
    train(run, tmp_path / "run")
    for line, kind, words in (
        (case("slow", 0, channels=3), DataError, r"3 channel\(s\); the model was trained on 2"),
        (case("slow", 0, length=99), ShapeError, too_long),
        (case("slow", 0, length=1), DataError, r"case 0 has 1 time step\(s\)"),
    ):
        source = write(tmp_path, "new.ts", [line])
        with pytest.raises(kind, match=words):
            predict_run(tmp_path / "run", source=source, target=tmp_path / "classes.csv")


@pytest.mark.long  # aeon compiles for a minute
def test_new_data_too_long_for_minirocket_is_refused(waves: Path, tmp_path: Path) -> None:
    pytest.importorskip("aeon")
    train(
        make_run("classification", data_file=str(waves), model="minirocket", profile="smoke"),
        tmp_path / "run",
    )
    source = write(tmp_path, "new.ts", [case("slow", 0), case("slow", 1, length=15)])
    with pytest.raises(ShapeError, match=r"new\.ts, case 1: MiniRocket.* up to 14 steps; this one has 15"):
        predict_run(tmp_path / "run", source=source, target=tmp_path / "classes.csv")


def test_labels_unseen_in_training(waves: Path) -> None:
    write(waves.parent, "waves_TEST.ts", [case("slow", 0), case("odd", 1)])
    with pytest.raises(DataError, match=r"waves_TEST\.ts: 1 case\(s\) have labels unseen in TRAIN: odd"):
        opened(waves)


def test_one_class_only(waves: Path) -> None:
    write(waves.parent, waves.name, [case("slow", n) for n in range(5)])
    write(waves.parent, "waves_TEST.ts", [case("slow", 9)])
    with pytest.raises(DataError, match=r"5 case\(s\) of one class only.*Bring cases of another class"):
        opened(waves)


def test_no_more_cases_than_classes(waves: Path) -> None:
    write(waves.parent, waves.name, [case("slow", 0), case("fast", 1), case("odd", 2)])
    with pytest.raises(DataError, match="3 cases for 3 classes: every case has a label of its own"):
        opened(waves)


def test_series_of_one_step(waves: Path) -> None:
    lines = [case("slow", 0), case("fast", 1, length=1), case("slow", 2), case("fast", 3)]
    write(waves.parent, waves.name, lines)
    with pytest.raises(DataError, match=r"case 1 has 1 time step\(s\); a series has at least 2"):
        opened(waves)


def test_without_a_test_file_a_fault_is_named_by_its_place_in_the_file(waves: Path) -> None:
    waves.with_name("waves_TEST.ts").unlink()
    lines = [case(("slow", "fast")[n % 2], n) for n in range(20)]
    write(waves.parent, waves.name, [*lines, case("slow", 20, length=1)])
    with pytest.raises(DataError, match=r"waves_TRAIN\.ts: case 20 has 1 time step\(s\)"):
        opened(waves)
    write(waves.parent, waves.name, [*lines, "1,?,3:4,5,6:slow\n"])
    with pytest.raises(DataError, match=r"waves_TRAIN\.ts: 1 missing value.*the first in case 20"):
        opened(waves)


def test_too_few_cases_to_test_on_some(waves: Path) -> None:
    waves.with_name("waves_TEST.ts").unlink()
    write(waves.parent, waves.name, [case(label, n) for n, label in enumerate(["slow", "fast"] * 2)])
    with pytest.raises(DataError, match=r"2 of 4 cases are held out.*Bring more cases or a TEST part"):
        opened(waves)


def test_a_test_part_that_is_packed_otherwise(waves: Path) -> None:
    test = waves.with_name("waves_TEST.ts")
    test.with_name("waves_TEST.ts.gz").write_bytes(gzip.compress(test.read_bytes()))
    test.unlink()
    assert dict(opened(waves).facts())["tested_on"] == "TEST"


def test_a_channel_that_never_moves_in_train(waves: Path, tmp_path: Path) -> None:
    def beside(value: str, number: int) -> str:
        moving, label = case(("slow", "fast")[number % 2], number, length=12, channels=1).split(":")
        return f"{moving}:{','.join([value] * 12)}:{label}"

    for name in (waves.name, "waves_TEST.ts"):
        write(waves.parent, name, [beside("7.1", n) for n in range(20)])
    run = make_run("classification", data_file=str(waves), model="aaren-causal", profile="smoke")
    train(run, tmp_path / "run")
    rows = []
    for value in ("7.1", "7.1000001"):  # what moves by so little may not sweep the answers away
        source = write(tmp_path, "new.ts", [beside(value, n) for n in range(20)])
        predict_run(tmp_path / "run", source=source, target=tmp_path / "classes.csv")
        rows.append(list(csv.DictReader((tmp_path / "classes.csv").read_text().splitlines())))
    for before, after in zip(*rows, strict=True):
        assert float(after["probability of slow"]) == pytest.approx(
            float(before["probability of slow"]), abs=1e-5
        )


def test_missing_values_in_a_file_of_ones_own(waves: Path) -> None:
    waves.write_text(waves.read_text().replace("@data\n", "@data\n1,?,3:4,5,6:slow\n"))
    with pytest.raises(DataError, match=r"1 missing value.*the first in case 0, channel 0"):
        opened(waves)
    assert len(opened(waves, allow_irregular=True).parts.train) == 41


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no file: give NAME_TRAIN\.ts"):
        opened(tmp_path / "nothing.ts")
    with pytest.raises(DataError, match="Run: aaren data fetch Handwriting"):
        SETTING.open(ClassificationConfig(dataset="Handwriting"), seed=0)
    with pytest.raises(ConfigError, match=r"name a dataset \(aaren data list classification\)"):
        SETTING.open(ClassificationConfig(), seed=0)


def test_configs_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="epochs must be at least 1; got 0; held_out is a part of TRAIN"):
        ClassificationConfig(dataset="Handwriting", epochs=0, held_out=1.0)
    with pytest.raises(ConfigError, match=r"'aaren-causal' runs on streams.*set standardise=train"):
        ClassificationConfig(dataset="Handwriting", model="aaren-causal")
    with pytest.raises(ConfigError, match="not both"):
        ClassificationConfig(dataset="Handwriting", data_file="x.ts")
    with pytest.raises(ConfigError, match="num_heads must divide width"):
        ClassificationConfig(dataset="Handwriting", network=NetworkConfig(num_heads=7))


def test_the_task_is_found_by_its_name() -> None:
    assert find_setting("classification") is SETTING


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Handwriting", 905_242),
        ("JapaneseVowels", 436_233),
        ("SelfRegulationSCP1", 629_890),
        ("SelfRegulationSCP2", 695_810),
        ("UWaveGestureLibrary", 721_928),
    ],
)
def test_real_files_give_the_published_totals(
    name: str, parameters: int, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    monkeypatch.delenv("XDG_CACHE_HOME")  # reading these takes seconds: once is enough
    for model, total in (("transformer", parameters), ("aaren", parameters + 384)):
        experiment = SETTING.open(ClassificationConfig(dataset=name, model=model), seed=0)
        assert sum(weight.numel() for weight in experiment.build_model().parameters()) == total


def test_heartbeat_is_tested_on_a_part_of_train(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    monkeypatch.delenv("XDG_CACHE_HOME")
    experiment = SETTING.open(ClassificationConfig(dataset="heartbeat-train"), seed=0)
    facts = experiment.facts()
    assert (facts["tested_on"], facts["stands_for"]) == ("held-out part of TRAIN", "Heartbeat")
    assert (facts["train_cases"], facts["test_cases"]) == (164, 40)


def test_features_are_a_row_like_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aeon")
    from aaren import load_model

    monkeypatch.delenv("AAREN_DATA", raising=False)
    run = make_run("classification", "JapaneseVowels", model="aaren-features", profile="smoke")
    record = train(run, tmp_path / "run")
    assert record.metric("test.accuracy") > 0.95
    assert record.metric("test.accuracy_at_0.50") > 0.85
    assert record.facts["epoch_chosen_by"] == "nobody: nothing is trained"
    assert load_model(tmp_path / "run" / "model").stream().push([0.0] * 12).shape == (9,)
