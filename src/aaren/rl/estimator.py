"""AarenPolicy: a policy learned from recorded episodes, with the interface of scikit-learn.

Its model is a `DecisionModel` with one token per step: the observation, and where among the recorded returns
the wanted one stands, which does not change during an episode. Training, scoring and acting see the same
context: up to K steps, in a state of constant size that is reset after them. Beside it every fit makes
the simplest alternative, a clone of the best third of the episodes, and where the environment is known plays
both.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from aaren.engine.config import EngineConfig
from aaren.engine.estimator import Estimator, Learned, RandomState
from aaren.engine.loop import fit as fit_experiment
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.progress import duration
from aaren.errors import ConfigError, DataError, MissingDependencyError, unknown_name
from aaren.export.whole import WholeStep
from aaren.rl.data import Trajectories
from aaren.rl.environments import Outcome, Player, Simulator, describe_actions, expects, is_built_in
from aaren.rl.episodes import read_episodes
from aaren.rl.model import DecisionModel, DecisionModelConfig
from aaren.rl.references import CloneExperiment, ClonePolicy
from aaren.rl.session import Actions, PolicySession, SessionPlayer
from aaren.rl.training import ReturnLadder, WindowExperiment
from aaren.stream.session import Item

# A base class cannot wait until it is used; this module is imported only when its estimator is asked for.
try:
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise MissingDependencyError(
        "AarenPolicy needs scikit-learn 1.6 or newer: pip install 'aaren[rl]'"
    ) from error

WEIGHT_DECAY = 1e-2
MOST_UNTAKEN = 50  # times as many discrete actions as were ever taken
FEW_CHOICES = 20  # different whole numbers, from 0, that are probably no quantities
FEWEST_TO_HOLD_OUT = 5  # episodes; of fewer, all are learned from and the last weights are kept
CLONE = "clone"  # its folder, when saved
WHO = ("policy", "clone")


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyEvaluation:
    """What a policy collected in fresh episodes."""

    returns: NDArray[np.float64]  # of every whole episode
    lengths: NDArray[np.int64]  # their steps
    failures: tuple[str, ...] = ()  # of episodes that the environment broke off by an error
    target_return: float | None = None  # what was asked for

    @property
    def mean(self) -> float:
        """Return the mean of the episodes' returns; NaN without any."""
        return float(self.returns.mean()) if len(self.returns) else float("nan")

    @property
    def standard_error(self) -> float:
        """Return the standard error of the mean; NaN of fewer than two episodes."""
        count = len(self.returns)
        return float(self.returns.std(ddof=1) / count**0.5) if count > 1 else float("nan")

    def __str__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"{self.mean:.1f} ± {self.standard_error:.1f} ({len(self.returns)} episodes{failed})"


class AarenPolicy(Estimator, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Learn from recorded episodes to act, given a target return.

    Args:
        target_return: the return to ask for, in the environment's unit; None: a quantile of the data's.
        target_quantile: which one: 0.9 is what one episode in ten reached.
        width: of the network.
        num_heads: must divide width.
        num_layers: of its encoder.
        mixer: "aaren" or, to compare, "softmax" (the Transformer, whose memory grows).
        dropout: while training.
        context_steps: K, the most steps that the policy remembers: after every K its state is reset.
        updates: of the weights, at most; the learning rate falls to 0 over them.
        batch_size: windows of K recorded steps in an update.
        learning_rate: the highest.
        validation_fraction: of the episodes, held out: the weights are kept under which their actions are
            most likely. 0: train on all, keep the last weights.
        patience: evaluations, of 20 in all, without improvement on held-out episodes before training ends.
        comparison_episodes: played by the policy and by a clone of the best third after a fit, where the
            environment is known; 0: none.
        random_state: an int makes fits repeatable, None does not.
        device: of the training: "auto", "cpu" or "cuda".
        threads: of torch while fitting; 0: as torch chooses.
        verbose: show progress, the return that will be asked for, and the comparison.

    >>> rng = np.random.default_rng(0)
    >>> episodes = [{"observations": rng.normal(size=(9, 2)), "actions": rng.integers(2, size=9),
    ...              "rewards": np.ones(9)} for _ in range(8)]
    >>> policy = AarenPolicy(updates=4).fit(episodes)
    >>> policy.target_return_
    9.0
    >>> session = policy.stream()
    >>> session.push([0.1, 0.2]) in (0, 1), session.push([0.3, 0.1], reward=1.0) in (0, 1)
    (True, True)
    """

    def __init__(
        self,
        *,
        target_return: float | None = None,
        target_quantile: float = 0.9,
        width: int = 32,
        num_heads: int = 4,
        num_layers: int = 2,
        mixer: str = "aaren",
        dropout: float = 0.0,
        context_steps: int = 20,
        updates: int = 1_500,
        batch_size: int = 32,
        learning_rate: float = 2e-3,
        validation_fraction: float = 0.1,
        patience: int = 6,
        comparison_episodes: int = 30,
        random_state: RandomState = 0,
        device: str = "auto",
        threads: int = 0,
        verbose: bool | int = False,
    ) -> None:
        self.target_return = target_return
        self.target_quantile = target_quantile
        self.width = width
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.mixer = mixer
        self.dropout = dropout
        self.context_steps = context_steps
        self.updates = updates
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.comparison_episodes = comparison_episodes
        self.random_state = random_state
        self.device = device
        self.threads = threads
        self.verbose = verbose

    def fit(self, episodes: Any, y: object = None, *, environment: object = None) -> "AarenPolicy":
        """Learn from recorded episodes.

        Args:
            episodes: A dataset's name ("cartpole"), a `.npz` or `.hdf5` file, a Minari dataset or its id, or
                a list with one entry per episode: a dict of `observations` (steps, numbers), `actions`
                (steps, numbers), or (steps,) of whole numbers if they are discrete, and `rewards` (steps,).
                Episodes of one step show no consequence of an action and are left out.
            y: Ignored; scikit-learn passes it.
            environment: That the episodes are of, a Gymnasium id or a built one, to know bounds of actions
                and to compare; None: what the data names, if it is one of Gymnasium's own.
        """
        del y
        self._check_settings()
        data = read_episodes(episodes, drop_short=True)
        _require_numbered(data)
        simulator = self._find_environment(data, environment)
        if simulator is None:
            _warn_of_choices(data)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        observer = self._observer()
        held, kept = self._hold_out(data, seed)
        target = self.target_return
        if target is None:
            target = float(np.quantile(data.returns, self.target_quantile))
        if self.verbose:
            observer.say(self._describe_target(data, target))
        ladder = ReturnLadder(np.sort(data.returns))
        low, high = _bounds(data, simulator)
        experiment = WindowExperiment(
            data.select(kept),
            data.select(held) if len(held) else None,
            network=self._network(data, simulator, float(ladder.place(target))),
            ladder=ladder,
            bounds=(low, high),
            optimiser=OptimiserConfig(
                name="adamw", learning_rate=float(self.learning_rate), weight_decay=WEIGHT_DECAY
            ),
            updates=int(self.updates),
            batch_size=int(self.batch_size),
            patience=int(self.patience),
            seed=seed,
        )
        engine = EngineConfig(device=self.device, threads=self.threads)  # type: ignore[arg-type]  # it checks
        fitted = fit_experiment(experiment, seed=seed, engine=engine, observer=observer, name="AarenPolicy")
        config = experiment.network
        cloning = CloneExperiment(
            data.select(kept),
            statistics=experiment.training.statistics,
            num_actions=config.action_size if config.is_discrete else None,
            bounds=(low, high),
            seed=seed,
        )
        clone = fit_experiment(cloning, seed=seed, engine=replace(engine, device="cpu")).model
        self.clone_ = cast("ClonePolicy", clone)
        self.model_ = cast("DecisionModel", fitted.model.to("cpu"))
        self.target_return_, self.ladder_ = float(target), ladder
        self.behaviour_return_, self.best_return_ = float(data.returns.mean()), float(data.returns.max())
        self.n_iter_ = fitted.status.update
        self.fit_seconds_ = fitted.status.total_seconds
        self.environment_ = "" if simulator is None or simulator.is_built else simulator.environment_id
        self._session: PolicySession | None = None
        self.comparison_: dict[str, PolicyEvaluation] = {}
        if simulator is not None and self.comparison_episodes:
            self.comparison_ = {
                who: self._play(simulator, who, int(self.comparison_episodes), (seed, 1), None) for who in WHO
            }
        if self.verbose:
            observer.say(self.table())
        self._warn_if_clone_wins()
        return self

    def act(self, observation: Item, reward: float | None = None) -> Actions:
        """Return the action for what one episode shows now; the estimator remembers the episode.

        Args:
            observation: (numbers,), as the environment gives it.
            reward: For the action before. It may be left out: what is asked for stays as it is.

        Call `reset` before the next episode. For several episodes at once, or in several threads, open
        sessions with `stream`.
        """
        self._require_fitted()
        if self._session is None:
            self._session = self.stream()
        return self._session.push(observation, reward)

    def reset(self) -> None:
        """Forget the episode that `act` is in."""
        self._session = None

    def stream(
        self,
        batch_size: int | None = None,
        *,
        target_return: float | None = None,
        engine: str = "auto",
    ) -> PolicySession:
        """Open a session: `push(observation, reward)` gives the next action, `reset()` starts an episode.

        What is asked for stays the same through an episode, so rewards may be left out.

        Args:
            batch_size: How many episodes go side by side; None: one, whose observations lack that axis.
            target_return: What to ask for; None: `target_return_`.
            engine: "native" (the C runtime), "torch", or "auto": native where the policy can be lowered.
        """
        self._require_fitted()
        wanted: object = self.target_return_ if target_return is None else target_return
        if not isinstance(wanted, Real) or not np.isfinite(float(wanted)):
            raise ConfigError(f"target_return must be a finite number; got {wanted!r}.")
        place = float(self.ladder_.place(float(wanted)))
        return self.model_.stream(batch_size, target_return=place, context="reset", engine=engine)

    def evaluate(
        self,
        environment: object = None,
        *,
        episodes: int = 30,
        target_return: float | None = None,
        who: str = "policy",
        seed: int = 0,
    ) -> PolicyEvaluation:
        """Play fresh episodes to their ends and return what was collected.

        Args:
            environment: A Gymnasium id, whose episodes are played side by side, or a built one; None: that
                of the fit. Episodes end where the environment, or its own step limit, ends them; one without
                a limit is ended after 1000 steps.
            episodes: How many.
            target_return: What to ask for; None: `target_return_`.
            who: "policy", or "clone": the clone of the best third.
            seed: Of the environment's episodes.
        """
        self._require_fitted()
        if who not in WHO:
            raise unknown_name("player", who, WHO)
        count: object = episodes  # whatever the type says
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ConfigError(f"episodes must be a whole number, at least 1; got {episodes!r}.")
        named = self.environment_ if environment is None else environment
        if not named:
            raise ConfigError(
                "which environment? Name it: evaluate('CartPole-v1'), or evaluate(gymnasium.make(...))."
            )
        simulator = _open(named)
        config = self.model_.config
        _require_fit(simulator, config.state_size, config.actions, config.action_size)
        return self._play(simulator, who, int(episodes), (seed, 0), target_return)

    def table(self) -> str:
        """Return the comparison with the clone after a fit as a small table, and the verdict."""
        self._require_fitted()
        rows = [
            ("policy, asked for " + _short(self.target_return_), "policy"),
            ("clone of the best third", "clone"),
        ]
        lines = [
            f"AarenPolicy: {self.n_iter_} updates in {duration(self.fit_seconds_)}, "
            f"{self.model_.init_state(1).nbytes:,} bytes per running episode"
        ]
        for label, who in rows:
            found = self.comparison_.get(who)
            lines.append(f"  {label:<32} {'not played' if found is None else found}")
        lines.append(
            f"  {'recorded episodes':<32} {self.behaviour_return_:.1f}, best {self.best_return_:.1f}"
        )
        if np.isclose(self.behaviour_return_, self.best_return_):
            lines.append("  all recorded returns are equal: there is nothing better to ask for")
        if not self.comparison_:
            lines.append(
                "  no environment to compare in: name one, fit(..., environment='ID'), or evaluate later"
            )
        else:
            lines.append(f"  {self.verdict()}")
        return "\n".join(lines)

    def verdict(self) -> str:
        """Say whether the policy or the clone collected more, beyond two standard errors."""
        self._require_fitted()
        if not self.comparison_:
            return "not compared"
        gap, noise = self._gap()
        if not abs(gap) > 2.0 * noise:
            return "no difference beyond noise: the clone is simpler, the policy can be asked for a return"
        return (
            "the policy wins" if gap > 0 else "the clone wins: use the clone, policy.clone_.act(observation)"
        )

    def whole_step(self) -> WholeStep:
        """Return what is exported: the policy, asked for `target_return_`."""
        return self.model_.whole_step(self.stream(engine="torch"))

    def _state_dict(self) -> Learned:
        facts = {
            "target_return": self.target_return_,
            "behaviour_return": self.behaviour_return_,
            "best_return": self.best_return_,
            "num_updates": self.n_iter_,
            "fit_seconds": self.fit_seconds_,
            "environment": self.environment_,
            "comparison": {
                who: {"failures": list(score.failures), "target_return": score.target_return}
                for who, score in self.comparison_.items()
            },
        }
        arrays: dict[str, NDArray[Any]] = {"recorded_returns": self.ladder_.returns}
        for who, score in self.comparison_.items():
            arrays[f"{who}.returns"], arrays[f"{who}.lengths"] = score.returns, score.lengths
        others = {CLONE: self.clone_}
        return Learned(model=self.model_, facts=cast("Any", facts), arrays=arrays, others=others)

    def _restore(self, learned: Learned) -> None:
        facts, arrays = cast("dict[str, Any]", learned.facts), learned.arrays
        model, clone = learned.model, learned.others[CLONE]
        if not isinstance(model, DecisionModel) or not isinstance(clone, ClonePolicy):
            raise DataError("expected a DecisionModel and a ClonePolicy; save the policy again.")
        self.model_, self.clone_ = model, clone
        self.target_return_, self.ladder_ = (
            float(facts["target_return"]),
            ReturnLadder(arrays["recorded_returns"]),
        )
        self.behaviour_return_ = float(facts["behaviour_return"])
        self.best_return_ = float(facts["best_return"])
        self.n_iter_, self.fit_seconds_ = facts["num_updates"], facts["fit_seconds"]
        self.environment_, self._session = facts["environment"], None
        self.comparison_ = {
            who: PolicyEvaluation(
                returns=arrays[f"{who}.returns"],
                lengths=arrays[f"{who}.lengths"],
                failures=tuple(score["failures"]),
                target_return=score["target_return"],
            )
            for who, score in facts["comparison"].items()
        }

    def _require_fitted(self) -> None:
        check_is_fitted(self, "model_")

    def _play(
        self, simulator: Simulator, who: str, episodes: int, place: tuple[int, int], target: float | None
    ) -> PolicyEvaluation:
        seeds = [
            int(np.random.SeedSequence((*place, number)).generate_state(1)[0]) for number in range(episodes)
        ]
        asked = self.target_return_ if target is None else float(target)
        size = self.model_.config.state_size

        def player(count: int) -> Player:
            if who == "clone":
                return _ClonePlayer(self.clone_)
            return SessionPlayer(self.stream(count, target_return=asked, engine="torch"))

        outcomes: list[Outcome] = []
        at_once = 1 if simulator.is_built else episodes
        for begin in range(0, episodes, at_once):
            part = seeds[begin : begin + at_once]
            outcomes += simulator.play(player(len(part)), part, observation_size=size)
        whole = [outcome for outcome in outcomes if outcome.is_whole]
        return PolicyEvaluation(
            returns=np.array([outcome.total for outcome in whole]),
            lengths=np.array([outcome.steps for outcome in whole], dtype=np.int64),
            failures=tuple(outcome.error for outcome in outcomes if not outcome.is_whole),
            target_return=asked if who == "policy" else None,
        )

    def _gap(self) -> tuple[float, float]:
        """Return how much more the policy collected than the clone, and the standard error of that."""
        ours, theirs = (self.comparison_[who].returns for who in WHO)
        if len(ours) == len(theirs) > 1:  # of the same starts
            gaps = ours - theirs
            return float(gaps.mean()), float(gaps.std(ddof=1) / len(gaps) ** 0.5)
        return float("nan"), float("nan")

    def _warn_if_clone_wins(self) -> None:
        if self.comparison_:
            gap, noise = self._gap()
            if gap < -2.0 * noise:
                warnings.warn(
                    f"the clone of the best third collects more: {self.comparison_['clone']}, the policy "
                    f"{self.comparison_['policy']}. Use the clone (policy.clone_.act(observation)), or give "
                    f"more episodes or updates.",
                    UserWarning,
                    stacklevel=3,
                )

    def _describe_target(self, data: Trajectories, target: float) -> str:
        above = float(np.mean(data.returns >= target))
        how = (
            "as given" if self.target_return is not None else f"quantile {self.target_quantile:g} of the data"
        )
        return (
            f"AarenPolicy: {len(data)} episodes, {data.num_transitions:,} steps; will ask for a return of "
            f"{_short(target)} ({how}; {100 * above:.0f} % of the episodes reach it, the best has "
            f"{_short(float(data.returns.max()))}); target_return= changes it"
        )

    def _network(self, data: Trajectories, simulator: Simulator | None, place: float) -> DecisionModelConfig:
        is_discrete = data.num_actions is not None
        return DecisionModelConfig(
            state_size=data.state_size,
            action_size=data.action_size if simulator is None or not is_discrete else simulator.actions.size,
            actions="discrete" if is_discrete else "box",
            width=int(self.width),
            num_heads=int(self.num_heads),
            num_layers=int(self.num_layers),
            ff_width=2 * int(self.width),
            mixer=self.mixer,
            dropout=float(self.dropout),
            is_fused=True,
            sees_actions=False,
            norm="pre",
            max_steps=1,  # no clock: a table of timesteps overfits to the recorded episodes
            timestep_std=0.02,
            context_steps=int(self.context_steps),
            counts_rewards=False,
            return_scale=1.0,
            target_return=place,
        )

    def _find_environment(self, data: Trajectories, given: object) -> Simulator | None:
        """Build the environment that was named, or that the data names if that imports nothing."""
        if given is not None:
            simulator = _open(given)
        elif not data.environment:
            return None
        else:
            try:
                if not is_built_in(data.environment):
                    return None
                simulator = _open(data.environment)
            except (MissingDependencyError, ConfigError):  # episodes are enough to learn from
                return None
        kind = "box" if data.num_actions is None else "discrete"
        _require_fit(simulator, data.state_size, kind, data.action_size)
        return simulator

    def _hold_out(self, data: Trajectories, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.random.default_rng((seed, 2)).permutation(len(data))
        count = max(1, round(self.validation_fraction * len(data))) if self.validation_fraction else 0
        if len(data) < FEWEST_TO_HOLD_OUT:
            count = 0
        return np.sort(order[:count]), np.sort(order[count:])

    def _check_settings(self) -> None:
        """Report every setting that cannot be."""
        faults = []
        for name, least in (
            ("updates", 1),
            ("batch_size", 1),
            ("context_steps", 1),
            ("patience", 1),
            ("comparison_episodes", 0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                faults.append(f"{name} must be an integer; got {value!r}")
            elif value < least:
                faults.append(f"{name} must be at least {least}; got {value}")
        target: object = self.target_return
        if target is not None and (not isinstance(target, Real) or not np.isfinite(float(target))):
            faults.append(f"target_return must be a finite number, or None; got {target!r}")
        if not 0.0 <= self.target_quantile <= 1.0:
            faults.append(f"target_quantile must be between 0 and 1; got {self.target_quantile}")
        if not 0.0 <= self.validation_fraction < 1.0:
            faults.append(
                f"validation_fraction must be at least 0 and below 1; got {self.validation_fraction}"
            )
        if faults:
            raise ConfigError("; ".join(faults) + ".")


class _ClonePlayer:
    """The clone in all episodes at once."""

    def __init__(self, clone: ClonePolicy) -> None:
        self.clone = clone

    def act(
        self, observations: NDArray[np.float64], rewards: NDArray[np.float64] | None
    ) -> NDArray[np.generic]:
        """Act on the observations alone."""
        del rewards
        return self.clone.act(observations)

    def keep(self, rows: Sequence[int]) -> None:
        """Nothing is remembered."""


class _Bounds(NamedTuple):
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def _bounds(data: Trajectories, simulator: Simulator | None) -> _Bounds:
    """Return between what actions lie: as the environment says, elsewhere as recorded."""
    if data.num_actions is not None:
        return _Bounds(np.zeros(0), np.zeros(0))
    taken = data.actions.astype(np.float64)
    low, high = taken.min(axis=0), taken.max(axis=0)
    if data.action_low is not None and data.action_high is not None:
        low, high = data.action_low.astype(np.float64), data.action_high.astype(np.float64)
    if simulator is not None:
        low = np.where(np.isfinite(simulator.actions.low), simulator.actions.low, low)
        high = np.where(np.isfinite(simulator.actions.high), simulator.actions.high, high)
    return _Bounds(low, np.where(high > low, high, low + 1.0))


def _open(environment: object) -> Simulator:
    needed = ("reset", "step", "observation_space", "action_space")
    if not isinstance(environment, str) and not all(hasattr(environment, name) for name in needed):
        raise ConfigError(
            f"an environment is a Gymnasium id such as 'CartPole-v1', or one that is built by "
            f"gymnasium.make; got {environment!r}."
        )
    return Simulator(environment)  # type: ignore[arg-type]  # it has what is needed


def _require_fit(simulator: Simulator, state_size: int, actions: str, action_size: int) -> None:
    """Raise unless a policy of these sizes can act in an environment."""
    name, found = simulator.environment_id, simulator.actions
    is_smaller = actions == "discrete" and action_size <= found.size  # some may never have been taken
    if (
        expects(name, simulator.observation_size, state_size)
        and actions == found.kind
        and (action_size == found.size or is_smaller)
    ):
        return
    cure = "they are of another environment."
    if found.kind == "discrete" and (actions, action_size) == ("box", 1):
        cure = "give discrete actions as whole numbers, actions.astype(int)."
    elif found.kind == "discrete" and (actions, action_size) == ("box", found.size):
        cure = "give discrete actions as whole numbers, actions.argmax(-1)."
    elif found.kind == actions == "discrete" and found.size + 1 == action_size:
        cure = "are actions counted from 1? Count them from 0: actions - 1."
    raise DataError(
        f"{name} shows {simulator.observation_size} numbers and takes "
        f"{describe_actions(found.kind, found.size)}; the episodes have observations of {state_size} and "
        f"{describe_actions(actions, action_size)}: {cure}"
    )


def _require_numbered(data: Trajectories) -> None:
    """Raise if whole-numbered actions are names rather than numbers: few of them, and large."""
    if data.num_actions is None:
        return
    taken = len(np.unique(data.actions))
    if data.num_actions > MOST_UNTAKEN * taken:
        raise DataError(
            f"actions are whole numbers up to {data.num_actions - 1}, and only {taken} of these were taken. "
            f"Number them from 0, alike in all episodes: np.searchsorted(np.unique(all_actions), actions)."
        )


def _warn_of_choices(data: Trajectories) -> None:
    """Warn of actions that look like choices but are given, and so learned, as continuous numbers."""
    taken = np.unique(data.actions)
    is_number = data.num_actions is None and data.action_size == 1
    if is_number and 1 < len(taken) <= FEW_CHOICES and np.array_equal(taken, np.arange(len(taken))):
        warnings.warn(
            f"the actions are {', '.join(f'{one:g}' for one in taken)} in floating point, and are learned as "
            f"numbers that may lie between these. If they are choices, give actions.astype(int).",
            stacklevel=3,
        )


def _short(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < 1e4 else f"{value:,.0f}"
