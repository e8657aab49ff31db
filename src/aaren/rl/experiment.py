"""Learn from recorded episodes to act, evaluated in the environment that they are of.

Windows of recorded steps train the model to repeat actions, given the return that followed; then it is asked
for a high return and plays. "Validation" are episodes during training, whose best evaluation selects the
weights; "test" are fresh episodes with the selected weights.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aaren.datasets.catalogue import lookup
from aaren.engine.experiment import PARTS, Json, Part
from aaren.engine.plan import Criterion, Moment, Plan, warm_up
from aaren.errors import ConfigError, DataError
from aaren.rl import data as recorded
from aaren.rl.batches import TrajectoryBatches
from aaren.rl.config import RlConfig
from aaren.rl.data import Trajectories
from aaren.rl.environments import (
    REFERENCE_RETURNS,
    Outcome,
    Player,
    Simulator,
    describe_actions,
    expects,
    is_built_in,
    score,
    simulator_versions,
)
from aaren.rl.model import DecisionModel
from aaren.rl.references import BehaviourPolicy, RandomPolicy, ReferencePolicyConfig
from aaren.rl.session import SessionPlayer
from aaren.rl.training import PolicyExperiment

# What the Decision Transformer asks for; Ant's is not in the base code.
TARGETS = {"halfcheetah": 6000.0, "hopper": 3600.0, "walker2d": 5000.0, "ant": 6000.0}
PUBLISHED_SCALE = 1000.0


class Scales(NamedTuple):
    """By what returns and actions are scaled, and which return is asked for."""

    return_scale: float
    target_return: float
    action_low: NDArray[np.float64]  # (action size,), empty for discrete actions
    action_high: NDArray[np.float64]


class RlExperiment(PolicyExperiment):
    """Recorded episodes, the environment they are of, and a model that acts in it."""

    def __init__(self, config: RlConfig, data: Trajectories, simulator: Simulator, *, seed: int) -> None:
        self.config, self.data, self.simulator, self.seed = config, data, simulator, seed
        self.optimiser = config.optimiser
        self.scales = find_scales(config, data, simulator)
        self.failures: list[dict[str, Json]] = []
        self.training = TrajectoryBatches(
            data,
            context_steps=config.context_steps,
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
            schedule=warm_up(config.warm_up, end=config.updates if config.rate_falls else None),
            clip_norm=config.clip_norm,
        )

    def build_model(self) -> nn.Module:
        """Build the model and give it the scales of the data."""
        actions, scales = self.simulator.actions, self.scales
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

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Play episodes: those of a training moment, or, as test, always the same fresh ones."""
        if isinstance(model, BehaviourPolicy):
            found = spread(self.simulator.environment_id, self.data.returns)
            return {**found, "length": float(self.data.lengths.mean()), "failed": 0.0}
        update = moment.update if part == "validation" else 0
        place = (self.seed, PARTS.index(part), update)
        seeds = [
            int(np.random.SeedSequence((*place, episode)).generate_state(1)[0])
            for episode in range(self.config.episodes)
        ]
        outcomes = self.simulator.play(
            self._player(model, place), seeds, observation_size=self.data.state_size
        )
        self.failures += [
            {"part": part, "update": moment.update, "episode": number, "error": outcome.error}
            for number, outcome in enumerate(outcomes)
            if not outcome.is_whole
        ]
        asked = {"target": self.scales.target_return} if not self.config.is_reference else {}
        return {**asked, **sum_up(self.simulator.environment_id, outcomes)}

    def _player(self, model: nn.Module, place: tuple[int, ...]) -> Player:
        if isinstance(model, RandomPolicy):
            return _RandomPlayer(model, np.random.default_rng(place))
        assert isinstance(model, DecisionModel)
        session = model.stream(
            self.config.episodes,
            target_return=self.scales.target_return,
            context=self.config.context,
            context_steps=self.config.context_steps,
            engine="torch",  # whose last bits the records were made with
        )
        return SessionPlayer(session)

    def facts(self) -> Mapping[str, Json]:
        """Return sizes, the environment and its versions, what was asked for, and what failed."""
        row = lookup(self.config.dataset) if self.config.dataset else None
        data, environment = self.data, self.simulator.environment_id
        mean = float(data.returns.mean())
        return {
            "environment": environment,
            "simulator": cast("dict[str, Json]", simulator_versions()),
            "episode_steps": self.simulator.max_steps,
            "observation_size": self.simulator.observation_size,
            "state_size": data.state_size,
            "action_size": self.simulator.actions.size,
            "actions": self.simulator.actions.kind,
            "trajectories": len(data),
            "transitions": data.num_transitions,
            "data_return": mean,
            "data_score": score(environment, mean),
            "data_best_return": float(data.returns.max()),
            "behaviours": cast("Json", data.record.get("behaviours", [])),
            "target_return": self.scales.target_return,
            "return_scale": self.scales.return_scale,
            "context": self.config.context,
            "train_steps": self.config.context_steps,
            "is_regenerated": self.config.dataset.endswith("-regen"),
            "stands_for": row.stands_for if row else "",
            "remark": row.remark if row else "",
            "failures": cast("Json", self.failures),
        }


def open_trajectories(config: RlConfig) -> Trajectories:
    """Read a registered set, or the user's own file or Minari dataset."""
    if config.dataset:
        found = recorded.load(config.dataset)
    else:
        try:
            found = recorded.read(config.data_file, drop_short=config.drop_short)
        except DataError as error:
            message = str(error).replace("drop_short=True", "--set drop_short=true")
            raise DataError(message) from error
    if config.max_trajectories is not None:
        found = found.select(np.arange(min(config.max_trajectories, len(found))))
    longest = int(found.lengths.max())
    if longest > config.network.max_steps:
        raise ConfigError(
            f"{found.name}: its longest episode has {longest} steps, the timestep table "
            f"{config.network.max_steps} rows: --set network.max_steps={longest}."
        )
    return found


def open_simulator(config: RlConfig, data: Trajectories) -> Simulator:
    """Build the environment that the data is of, and check that it is."""
    environment_id = config.environment or data.environment
    if not environment_id:
        raise ConfigError(
            f"{data.name} does not say which environment it is of: name its Gymnasium id, such as "
            f"--set environment=Hopper-v4."
        )
    if not config.environment and not is_built_in(environment_id):
        raise ConfigError(
            f"{data.name} says that it is of the environment {environment_id[:200]!r}, which is none of "
            f"Gymnasium's own. Nothing is imported because a file names it; if you trust it, name it "
            f"yourself: --set environment=ID."
        )
    simulator = Simulator(environment_id, max_steps=config.episode_steps)
    kind = "box" if data.num_actions is None else "discrete"
    is_smaller = kind == "discrete" and data.action_size <= simulator.actions.size  # some may never be taken
    fits = (
        expects(environment_id, simulator.observation_size, data.state_size)
        and kind == simulator.actions.kind
        and (data.action_size == simulator.actions.size or is_smaller)
    )
    if not fits:
        raise DataError(
            f"{data.name} has observations of {data.state_size} numbers and "
            f"{describe_actions(kind, data.action_size)}; {environment_id} has {simulator.observation_size} "
            f"and {describe_actions(*simulator.actions[:2])}: the data is of another environment. Name the "
            f"right one: --set environment=ID."
        )
    return simulator


def find_scales(config: RlConfig, data: Trajectories, simulator: Simulator) -> Scales:
    """Take what is published for the robot; elsewhere, what the data shows."""
    robot = simulator.environment_id.lower().partition("-")[0]
    target = config.target_return
    if target is None:
        best = float(data.returns.max())
        target = best if config.asks_for == "best" else TARGETS.get(robot, best)
    scale = config.return_scale
    if scale is None:
        is_published = robot in REFERENCE_RETURNS
        scale = PUBLISHED_SCALE if is_published else float(np.abs(data.returns).max()) or 1.0
    low, high = simulator.actions.low, simulator.actions.high
    if simulator.actions.kind == "box":  # where the environment sets no bounds, those of the data hold
        taken = data.actions.astype(np.float64)
        low = np.where(np.isfinite(low), low, taken.min(axis=0))
        high = np.where(np.isfinite(high), high, taken.max(axis=0))
        high = np.where(high > low, high, low + 1.0)
    return Scales(scale, target * config.target_scale, low, high)


def sum_up(environment: str, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the means over whole episodes, how many failed, and every episode's return.

    >>> found = sum_up("Hopper-v4", [Outcome(1607.0, 500), Outcome(0.0, 3, "step 3: it fell apart")])
    >>> round(found["score"], 2), found["length"], found["failed"], found["return_0"]
    (50.0, 500.0, 1.0, 1607.0)
    """
    whole = [outcome for outcome in outcomes if outcome.is_whole]
    returns = np.array([outcome.total for outcome in whole])
    found = spread(environment, returns)
    found["length"] = float(np.mean([outcome.steps for outcome in whole])) if whole else float("nan")
    found["failed"] = float(len(outcomes) - len(whole))
    for number, outcome in enumerate(outcomes):
        found[f"return_{number}"] = outcome.total if outcome.is_whole else float("nan")
    return found


def spread(environment: str, returns: NDArray[np.float64]) -> dict[str, float]:
    """Return mean and sample standard deviation of returns, and of their scores."""
    mean = float(returns.mean()) if len(returns) else float("nan")
    deviation = float(returns.std(ddof=1)) if len(returns) > 1 else float("nan")
    unit = score(environment, 1.0) - score(environment, 0.0)  # of the score, for one unit of return
    return {
        "score": score(environment, mean),
        "score_std": deviation * unit,
        "return": mean,
        "return_std": deviation,
    }


class _RandomPlayer:
    """Random actions."""

    def __init__(self, policy: RandomPolicy, rng: np.random.Generator) -> None:
        self.policy, self.rng = policy, rng

    def act(
        self, observations: NDArray[np.float64], rewards: NDArray[np.float64] | None
    ) -> NDArray[np.generic]:
        """Draw random actions."""
        del rewards
        return self.policy.draw(len(observations), self.rng)

    def keep(self, rows: Sequence[int]) -> None:
        """Nothing is remembered."""
