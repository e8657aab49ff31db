from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MethodType

import pytest
import torch
from torch import nn

from aaren.engine.config import EngineConfig, RunConfig
from aaren.engine.distributed import SOLO
from aaren.engine.loop import PausedError, Update, fit
from aaren.engine.plan import Moment
from aaren.engine.run import train
from support.toy_task import ToyExperiment

Toy = Callable[..., ToyExperiment]
CPU = torch.device("cpu")


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("accumulate", [2, 3, 8, 20, 10**12])
def test_accumulation_changes_nothing(toy: Toy, accumulate: int) -> None:
    whole = fit(toy(dropout=0.0, penalty=0.01), seed=1)
    parts = fit(toy(dropout=0.0, penalty=0.01), seed=1, engine=EngineConfig(accumulate=accumulate))
    torch.testing.assert_close(weights(parts.model), weights(whole.model), rtol=1e-4, atol=1e-6)


def test_a_sum_over_cases_is_summed_over_parts(toy: Toy) -> None:
    def summed() -> ToyExperiment:
        experiment = toy(dropout=0.0, clip_norm=None)
        mean = experiment.loss
        experiment.loss = lambda model, batch: mean(model, batch) * len(batch)
        experiment.weight = lambda _batch: 1.0
        return experiment

    whole = fit(summed(), seed=1)
    parts = fit(summed(), seed=1, engine=EngineConfig(accumulate=4))
    torch.testing.assert_close(weights(parts.model), weights(whole.model), rtol=1e-4, atol=1e-6)
    assert parts.status.curve[0]["loss"] == pytest.approx(whole.status.curve[0]["loss"], rel=1e-5)


def test_one_update_is_the_textbook_one(toy: Toy) -> None:
    experiment = toy(dropout=0.0, penalty=0.1, clip_norm=0.5)
    torch.manual_seed(0)
    ours, theirs = experiment.build_model(), experiment.build_model()
    theirs.load_state_dict(ours.state_dict())
    batch = next(experiment.batches(0))
    update = Update(
        experiment, ours, experiment.build_optimiser(ours), engine=EngineConfig(), world=SOLO, device=CPU
    )
    loss = update(batch, Moment(16, 2))
    optimiser = torch.optim.Adam(theirs.parameters(), lr=0.5e-2)  # in the third epoch the rate has halved
    want = experiment.loss(theirs, batch) + experiment.penalty(theirs)
    want.backward()
    nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
    optimiser.step()
    assert float(loss) == pytest.approx(float(want.detach()))
    torch.testing.assert_close(weights(ours), weights(theirs))
    assert update.take_inside_seconds() > 0.0
    assert update.take_inside_seconds() == 0.0


def test_autocast_reaches_the_model(toy: Toy) -> None:
    experiment = toy()
    seen = []
    plain = type(experiment).loss

    def spying(self: ToyExperiment, model: nn.Module, batch: object) -> torch.Tensor:
        seen.append(model(batch.inputs).dtype)
        return plain(self, model, batch)

    experiment.loss = MethodType(spying, experiment)
    fit(experiment, seed=0, engine=EngineConfig(autocast="bfloat16"))
    assert set(seen) == {torch.bfloat16}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_compiling_changes_little(toy: Toy) -> None:
    eager = fit(toy(dropout=0.0, epochs=1), seed=1)
    compiled = fit(toy(dropout=0.0, epochs=1), seed=1, engine=EngineConfig(compile=True))
    torch.testing.assert_close(weights(compiled.model), weights(eager.model), rtol=1e-3, atol=1e-4)
    assert list(compiled.model.state_dict()) == list(eager.model.state_dict())


def test_a_pause_is_heard_between_the_parts_of_an_update(toy: Toy) -> None:
    asked = []

    def is_pause_wanted() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(PausedError, match="within the update after 0, part 3 of 8"):
        fit(toy(), seed=1, engine=EngineConfig(accumulate=10**12), is_pause_wanted=is_pause_wanted)


def test_a_run_paused_within_an_update_ends_with_the_same_bits(
    toy_run: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = replace(toy_run(), engine=EngineConfig(threads=1, accumulate=4, checkpoint_seconds=0.0))
    whole = train(config, tmp_path / "whole")
    for stops in (3, 11, 30, 50):
        asked: list[int] = []

        def is_pause_wanted(asked: list[int] = asked, stops: int = stops) -> bool:
            asked.append(1)
            return len(asked) > stops

        with pytest.raises(PausedError):
            train(config, tmp_path / "parts", is_pause_wanted=is_pause_wanted)
    assert train(config, tmp_path / "parts").metrics == whole.metrics
