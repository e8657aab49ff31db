import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

from aaren.engine.checkpoint import Checkpoints
from aaren.engine.config import EngineConfig
from aaren.engine.experiment import Part
from aaren.engine.loop import DivergedError, FitResult, PausedError, fit
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Criterion, Moment, Plan
from aaren.engine.progress import Observer
from aaren.errors import ConfigError
from support.toy_task import ToyExperiment

Toy = Callable[..., ToyExperiment]


def same(left: FitResult, right: FitResult) -> bool:
    """Compare weights and curves bit for bit; only seconds may differ."""

    def curve(fitted: FitResult) -> list[dict[str, object]]:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in fitted.status.curve]

    states = left.model.state_dict(), right.model.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0]) and curve(left) == curve(
        right
    )


def test_it_learns(toy: Toy) -> None:
    fitted = fit(toy(epochs=20, dropout=0.0), seed=0)
    curve = fitted.status.curve
    assert curve[-1]["validation"]["mse"] < curve[0]["validation"]["mse"] / 3
    assert not fitted.model.training


def test_the_same_seed_gives_the_same_bits_and_leaves_no_trace(toy: Toy) -> None:
    torch.manual_seed(99)
    before = torch.get_rng_state()
    first = fit(toy(), seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()
    torch.rand(10)
    assert same(first, fit(toy(), seed=5))
    assert not same(first, fit(toy(), seed=6))


def test_looking_more_often_does_not_change_the_training(toy: Toy) -> None:
    def experiment(every: int) -> ToyExperiment:
        found = toy()
        found.plan = Plan(
            updates_per_epoch=8, max_updates=24, evaluate_every=every, selects=Criterion(metric="mse")
        )
        plain = found.evaluate

        def noisy(model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
            torch.rand(3)  # an evaluation that draws random numbers
            return plain(model, part, moment)

        found.evaluate = noisy
        return found

    often, seldom = fit(experiment(3), seed=0), fit(experiment(24), seed=0)
    assert often.status.curve[-1]["validation"] == seldom.status.curve[-1]["validation"]


def test_the_best_weights_come_back(toy: Toy) -> None:
    experiment = toy(epochs=5)
    scores = iter([3.0, 1.0, 2.0, 1.5, 4.0])
    seen = []

    def scripted(model: nn.Module, _part: Part, _moment: Moment) -> Mapping[str, float]:
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return {"mse": next(scores)}

    experiment.evaluate = scripted
    fitted = fit(experiment, seed=0)
    assert fitted.status.best["update"] == 16
    assert all(torch.equal(seen[1][name], tensor) for name, tensor in fitted.model.state_dict().items())


def test_patience_ends_the_run(toy: Toy) -> None:
    experiment = toy(epochs=50, patience=2)
    experiment.evaluate = lambda _model, _part, moment: {"mse": float(moment.update)}
    fitted = fit(experiment, seed=0)
    assert (fitted.status.ended_by, fitted.status.update) == ("patience", 24)


def test_a_baseline_without_updates_is_looked_at_once(toy: Toy) -> None:
    experiment = toy()
    experiment.plan = Plan(
        updates_per_epoch=8, max_updates=0, evaluate_every=8, selects=Criterion(metric="mse")
    )
    experiment.build_optimiser = pytest.fail
    fitted = fit(experiment, seed=0)
    assert (len(fitted.status.curve), fitted.status.update, fitted.status.ended_by) == (1, 0, "max_updates")


def test_a_shortened_epoch_uses_its_first_batches(toy: Toy) -> None:
    experiment = toy()
    experiment.plan = Plan(
        updates_per_epoch=3, max_updates=9, evaluate_every=3, selects=Criterion(metric="mse")
    )
    assert [look["epoch"] for look in fit(experiment, seed=0).status.curve] == [1, 2, 3]


def test_too_few_batches_are_a_fault_of_the_task(toy: Toy) -> None:
    experiment = toy()
    experiment.plan = Plan(
        updates_per_epoch=9, max_updates=9, evaluate_every=9, selects=Criterion(metric="mse")
    )
    with pytest.raises(RuntimeError, match="epoch 0 has 8 batches, the plan says 9"):
        fit(experiment, seed=0)


def test_a_loss_that_is_no_number_ends_the_run(toy: Toy) -> None:
    experiment = toy()
    plain = experiment.loss
    calls = []

    def bad(model: nn.Module, batch: object) -> torch.Tensor:
        calls.append(batch)
        return plain(model, batch) * (math.nan if len(calls) == 5 else 1.0)

    experiment.loss = bad
    with pytest.raises(
        DivergedError, match=r"the loss is nan at update 5: it has diverged\. Lower the learning rate"
    ):
        fit(experiment, seed=0)


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "radam", "sgd"])
def test_stopped_anywhere_it_ends_with_the_same_bits(toy: Toy, tmp_path: Path, optimiser: str) -> None:
    choices = {"optimiser": OptimiserConfig(name=optimiser, learning_rate=1e-2), "epochs": 2}
    whole = fit(toy(**choices), seed=3)
    for stop in (1, 7, 8, 9, 16):
        folder = tmp_path / str(stop)
        calls = []

        def wants_pause(calls: list[int] = calls, stop: int = stop) -> bool:
            calls.append(1)
            return len(calls) == stop

        try:
            fitted = fit(
                toy(**choices),
                seed=3,
                checkpoints=Checkpoints(folder=folder, config={}, every_seconds=1e9),
                is_pause_wanted=wants_pause,
            )
        except PausedError:
            torch.rand(100)  # whatever happens in between
            fitted = fit(toy(**choices), seed=3, checkpoints=Checkpoints(folder=folder, config={}))
            assert fitted.status.resumed == 1
        assert same(whole, fitted)


def test_a_checkpoint_of_another_config_is_refused(toy: Toy, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    fit(toy(), seed=0, checkpoints=Checkpoints(folder=folder, config={"seed": 0, "task": {"epochs": 3}}))
    with pytest.raises(
        ConfigError, match=r"holds a run of another config: seed: 0, now 1; task\.epochs: 3, now 4\."
    ):
        fit(toy(), seed=0, checkpoints=Checkpoints(folder=folder, config={"seed": 1, "task": {"epochs": 4}}))


def test_the_number_of_threads_comes_from_the_checkpoint(toy: Toy, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    checkpoints = Checkpoints(folder=tmp_path, config={})
    first = fit(toy(), seed=0, engine=EngineConfig(threads=2), checkpoints=checkpoints)
    again = fit(toy(), seed=0, checkpoints=Checkpoints(folder=tmp_path, config={}))
    assert (first.threads, again.threads, torch.get_num_threads()) == (2, 2, before)


def test_observers_are_told(toy: Toy) -> None:
    told = []

    class Spy(Observer):
        def begin(self, name: str, *_rest: object) -> None:
            told.append(name)

        def updated(self, _status: object, loss: Callable[[], float]) -> None:
            told.append(loss() > 0.0)

        def end(self) -> None:
            told.append("end")

    fit(toy(epochs=1), seed=0, observer=Spy(), name="toy")
    assert told == ["toy", *[True] * 8, "end"]


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_one_update_is_the_textbook_one(toy: Toy) -> None:
    experiment = toy(dropout=0.0, clip_norm=0.5)
    experiment.plan = Plan(
        updates_per_epoch=1, max_updates=1, evaluate_every=1, schedule=lambda _moment: 0.5, clip_norm=0.5
    )
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = experiment.build_model()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.5e-2)
    loss = experiment.loss(model, next(experiment.batches(0)))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimiser.step()
    result = fit(experiment, seed=4)
    assert result.status.curve[0]["loss"] == pytest.approx(float(loss.detach()))
    torch.testing.assert_close(weights(result.model), weights(model))
