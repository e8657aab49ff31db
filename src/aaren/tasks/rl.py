"""The rl task: learn from recorded episodes to act, and be judged by acting in the real environment.

Windows of recorded steps train the model to repeat actions, given the return that followed; then it is asked
for a high return and plays. "Validation" are episodes during training, whose best evaluation selects the
weights; "test" are fresh episodes with the selected weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.data.files.packed import noting_checksums
from aaren.data.registry import lookup
from aaren.data.rl.arrays import Trajectories
from aaren.data.rl.batches import TrajectoryBatch, TrajectoryBatches
from aaren.models.decision_model import DecisionModel
from aaren.models.decision_state import Steps
from aaren.models.policy_session import PolicySession
from aaren.models.reference_policies import BehaviourPolicy, RandomPolicy, ReferencePolicyConfig
from aaren.tasks.base import PARTS, Experiment, Json, Part, Task
from aaren.tasks.plan import Criterion, Moment, Plan, warm_up
from aaren.tasks.rl_arena import Arena, Player, simulator_versions
from aaren.tasks.rl_config import RlConfig
from aaren.tasks.rl_scores import score, spread, sum_up
from aaren.tasks.rl_sources import find_scales, open_arena, open_trajectories


class RlExperiment(Experiment[TrajectoryBatch]):
    """Recorded episodes, the environment they are of, and a model that acts in it."""

    uses_all_parameters = False  # the base code's spare heads

    def __init__(self, config: RlConfig, data: Trajectories, arena: Arena, *, seed: int) -> None:
        self.config, self.data, self.arena, self.seed = config, data, arena, seed
        self.scales = find_scales(config, data, arena)
        self.failures: list[dict[str, Json]] = []
        self.training = TrajectoryBatches(
            data,
            context_steps=config.train_steps,
            batch_size=config.batch_size,
            sampling=config.sampling,
            return_scale=self.scales.return_scale,
            seed=seed,
        )
        self.plan = Plan(
            updates_per_epoch=len(self.training),
            max_updates=0 if config.is_reference else config.updates,
            evaluate_every=max(1, config.updates // config.evaluations),
            selects=Criterion(metric="return", goal="max"),
            schedule=warm_up(config.warm_up),
            clip_norm=config.clip_norm,
        )

    @property
    def asks_for_returns(self) -> bool:
        """Tell whether the model is told which return is wanted."""
        return self.config.model in ("aaren", "transformer")

    def build_model(self) -> nn.Module:
        """Build the model and give it the scales of the data."""
        actions, scales = self.arena.actions, self.scales
        if self.config.is_reference:
            reference = ReferencePolicyConfig(action_size=actions.size, actions=actions.kind)
            if self.config.model == "behaviour":
                behaviour = BehaviourPolicy(reference)
                behaviour.mean_return.fill_(float(self.data.returns.mean()))
                return behaviour
            policy = RandomPolicy(reference)
            if actions.kind == "box":
                policy.low.copy_(torch.from_numpy(scales.action_low))
                policy.high.copy_(torch.from_numpy(scales.action_high))
            return policy
        model = DecisionModel(
            self.config.model_config(
                state_size=self.data.state_size,
                action_size=actions.size,
                actions=actions.kind,
                return_scale=scales.return_scale,
                target_return=scales.target_return,
            )
        )
        statistics = self.data.state_statistics
        model.set_scales(
            state_mean=torch.from_numpy(statistics.mean),
            state_std=torch.from_numpy(statistics.std),
            action_low=torch.from_numpy(scales.action_low),
            action_high=torch.from_numpy(scales.action_high),
        )
        return model

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build AdamW over all parameters."""
        return self.config.optimiser.build(model)

    def batches(self, epoch: int) -> Iterator[TrajectoryBatch]:
        """Walk through one window of every trajectory, in random order."""
        return self.training.epoch(epoch)

    def loss(self, model: nn.Module, batch: TrajectoryBatch) -> Tensor:
        """Return the squared error of actions, or the cross-entropy of discrete ones, over real steps."""
        assert isinstance(model, DecisionModel)
        steps = Steps(batch.returns_to_go, batch.observations, model.to_unit(batch.actions), batch.timesteps)
        return model.loss(steps, mask=None if bool(batch.mask.all()) else batch.mask)

    def weight(self, batch: TrajectoryBatch) -> float:
        """Say how many steps were averaged."""
        return float(batch.mask.sum())

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Play episodes: those of a training moment, or, as test, always the same fresh ones."""
        if isinstance(model, BehaviourPolicy):
            found = spread(self.arena.environment_id, self.data.returns)
            return {**found, "length": float(self.data.lengths.mean()), "failed": 0.0}
        update = moment.update if part == "validation" else 0
        place = (self.seed, PARTS.index(part), update)
        seeds = [
            int(np.random.SeedSequence((*place, episode)).generate_state(1)[0])
            for episode in range(self.config.episodes)
        ]
        outcomes = self.arena.play(self._player(model, place), seeds, observation_size=self.data.state_size)
        self.failures += [
            {"part": part, "update": moment.update, "episode": number, "error": outcome.error}
            for number, outcome in enumerate(outcomes)
            if not outcome.is_whole
        ]
        asked = {"target": self.scales.target_return} if self.asks_for_returns else {}
        return {**asked, **sum_up(self.arena.environment_id, outcomes)}

    def _player(self, model: nn.Module, place: tuple[int, ...]) -> Player:
        if isinstance(model, RandomPolicy):
            return _RandomPlayer(model, np.random.default_rng(place))
        assert isinstance(model, DecisionModel)
        session = model.stream(
            self.config.episodes,
            target_return=self.scales.target_return,
            context=self.config.acting_context,
            context_steps=self.config.context_steps,
        )
        return _SessionPlayer(session)

    def facts(self) -> Mapping[str, Json]:
        """Return sizes, the environment and its versions, what was asked for, and what failed."""
        row = lookup(self.config.dataset) if self.config.dataset else None
        data, environment = self.data, self.arena.environment_id
        mean = float(data.returns.mean())
        return {
            "environment": environment,
            "simulator": cast("dict[str, Json]", simulator_versions()),
            "episode_steps": self.arena.max_steps,
            "observation_size": self.arena.observation_size,
            "state_size": data.state_size,
            "action_size": self.arena.actions.size,
            "actions": self.arena.actions.kind,
            "trajectories": len(data),
            "transitions": data.num_transitions,
            "data_return": mean,
            "data_score": score(environment, mean),
            "data_best_return": float(data.returns.max()),
            "behaviours": cast("Json", data.record.get("behaviours", [])),
            "target_return": self.scales.target_return,
            "return_scale": self.scales.return_scale,
            "context": self.config.context,
            "train_steps": self.config.train_steps,
            "is_regenerated": self.config.dataset.endswith("-regen"),
            "stands_for": row.stands_for if row else "",
            "remark": row.remark if row else "",
            "failures": cast("Json", self.failures),
        }


class RlTask(Task[RlConfig, TrajectoryBatch]):
    """Offline reinforcement learning as the paper's section 4.1 and its base code do it."""

    name = "rl"
    config_type = RlConfig
    reports = ("best.score", "last.score", "test.score", "test.return")
    higher_is_better = reports
    data_ids = "the id of a Minari dataset"

    def open(self, config: RlConfig, *, seed: int) -> Experiment[TrajectoryBatch]:
        """Read the episodes and build their environment."""
        with noting_checksums() as checksums:
            data = open_trajectories(config)
        experiment = RlExperiment(config, data, open_arena(config, data), seed=seed)
        experiment.data_checksums = checksums
        return experiment

    def cell(self, config: RlConfig) -> Mapping[str, str | int]:
        """Say where in the table this run stands."""
        cell = {"dataset": config.dataset or Path(config.data_file).stem, "model": config.model}
        return cell if config.context == "window" else {**cell, "context": config.context}


class _SessionPlayer:
    """A policy session in all episodes at once."""

    def __init__(self, session: PolicySession) -> None:
        self.session = session

    def act(
        self, observations: NDArray[np.float64], rewards: NDArray[np.float64] | None
    ) -> NDArray[np.generic]:
        """Push what happened."""
        return cast("NDArray[np.generic]", self.session.push(observations, rewards))

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the episodes only."""
        self.session.keep(rows)


class _RandomPlayer:
    """Random actions."""

    def __init__(self, policy: RandomPolicy, rng: np.random.Generator) -> None:
        self.policy, self.rng = policy, rng

    def act(
        self, observations: NDArray[np.float64], rewards: NDArray[np.float64] | None
    ) -> NDArray[np.generic]:
        """Draw, whatever happened."""
        del rewards
        return self.policy.draw(len(observations), self.rng)

    def keep(self, rows: Sequence[int]) -> None:
        """Nothing is remembered."""


TASK = RlTask()
