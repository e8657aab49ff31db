"""AarenPolicy beside a clone of the best third of the episodes, and what the episodes themselves collected.

    python benchmarks/policy_estimator.py [--record FILE] [--quick]     # about ten minutes

Four environments of Gymnasium, none of which needs a download. In each, for every seed, a scripted policy
records 60 episodes, a third each skilled, clumsy (30 % random actions) and random; both are fitted with their
defaults and play the same fresh episodes to their ends. Pendulum and CartPole were looked at while the
defaults were chosen, with other recordings; Acrobot and MountainCarContinuous were not.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aaren.bench.publish import Benchmark, main
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, Setting, number
from aaren.bench.target import Target, judge, targets_table
from aaren.rl import AarenPolicy
from aaren.rl.data import CONTROL_SETS, ControlSet, record_episodes
from aaren.table import Table, format_bytes, format_seconds, text_table

COMMAND = "python benchmarks/policy_estimator.py"
DATA_SEED = 1_000  # of the first recording; the design was chosen on others
POLICY, CLONE, RECORDED = "AarenPolicy", "clone of the best third", "recorded episodes"
CONTENDERS = (POLICY, CLONE, RECORDED)
TUNED_ON, KEPT_ASIDE = ("CartPole-v1", "Pendulum-v1"), ("Acrobot-v1", "MountainCarContinuous-v0")
TIMED_ACTIONS = 200
FULL_POLE = 500.0


def swing(observation: NDArray[np.float64]) -> float:
    """Push Acrobot's second link (0, 1, 2: -1, 0, +1) against the motion of the first, which pumps energy."""
    return 0.0 if observation[4] > 0.0 else 2.0


def climb(observation: NDArray[np.float64]) -> float:
    """Push a car along its motion."""
    return 1.0 if observation[1] >= 0.0 else -1.0


SETS = {
    "CartPole-v1": CONTROL_SETS["cartpole"],
    "Pendulum-v1": CONTROL_SETS["pendulum"],
    "Acrobot-v1": ControlSet("Acrobot-v1", swing, lambda rng: float(rng.integers(3)), True, 1.0),
    "MountainCarContinuous-v0": ControlSet(
        "MountainCarContinuous-v0", climb, lambda rng: float(rng.uniform(-1.0, 1.0)), False, 1.0
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyEstimatorSettings:
    """What to measure."""

    environments: tuple[str, ...] = (*TUNED_ON, *KEPT_ASIDE)
    seeds: tuple[int, ...] = (0, 1, 2)
    recorded: int = 60  # episodes
    episodes: int = 30  # played
    updates: int | None = None  # None: the default


QUICK = PolicyEstimatorSettings(
    environments=("CartPole-v1",), seeds=(0,), recorded=12, episodes=2, updates=10
)


def measure(settings: PolicyEstimatorSettings, on_step: OnStep) -> Measured:
    """Record, fit and play."""
    rows: list[Row] = []
    work = [(name, seed) for name in settings.environments for seed in settings.seeds]
    for place, (name, seed) in enumerate(work):
        on_step(place, len(work), f"{name}, seed {seed}")
        rows += _measure_one(settings, name, seed)
    about: dict[str, Setting] = {
        "seeds": list(settings.seeds),
        "data_seed": DATA_SEED,
        "recorded": settings.recorded,
        "episodes": settings.episodes,
        "updates": settings.updates,
        **{key: value for key, value in AarenPolicy().get_params().items() if key != "updates"},
    }
    return about, rows


def _measure_one(settings: PolicyEstimatorSettings, name: str, seed: int) -> list[Row]:
    data = record_episodes(SETS[name], name=name, episodes=settings.recorded, seed=DATA_SEED + seed)
    policy = AarenPolicy(random_state=seed, comparison_episodes=0)
    if settings.updates is not None:
        policy.set_params(updates=settings.updates)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        policy.fit(data, environment=name)
    fit = {
        "fit_seconds": time.perf_counter() - begin,
        "fit_cpu_seconds": time.process_time() - begin_cpu,
        "updates": policy.n_iter_,
    }
    rows: list[Row] = []
    for contender, who in ((POLICY, "policy"), (CLONE, "clone")):
        found = policy.evaluate(episodes=settings.episodes, who=who, seed=DATA_SEED + seed)
        row: Row = {
            "environment": name,
            "contender": contender,
            "seed": seed,
            "return": found.mean,
            "standard_error": found.standard_error,
            "mean_steps": float(found.lengths.mean()),
            "failed": len(found.failures),
            **{f"return_{place}": value for place, value in enumerate(found.returns.tolist())},
        }
        if who == "policy":
            row |= {**fit, "target_return": policy.target_return_, **_cost(policy, data.observations[0])}
        rows.append(row)
    rows.append(
        {
            "environment": name,
            "contender": RECORDED,
            "seed": seed,
            "return": float(data.returns.mean()),
            "best_return": float(data.returns.max()),
            "best_third": float(np.sort(data.returns)[-(len(data) // 3) :].mean()),
        }
    )
    return rows


def _cost(policy: AarenPolicy, observation: NDArray[np.float32]) -> dict[str, float | str]:
    session = policy.stream()
    session.push(observation)
    times = []
    for _ in range(TIMED_ACTIONS):
        begin = time.perf_counter()
        session.push(observation, 0.0)
        times.append(time.perf_counter() - begin)
    return {
        "engine": session.engine,
        "action_seconds": float(np.median(times)),
        "state_bytes": float(session.state.nbytes),
    }


def tables(record: BenchRecord) -> list[Table]:
    """Return returns by environment, then costs, then the targets."""
    names = [name for name in SETS if record.find(environment=name) is not None]
    shown = [
        (
            name,
            "chosen on" if name in TUNED_ON else "kept aside",
            *(_spread(_returns(record, name, contender)) for contender in CONTENDERS),
            f"{np.mean(_values(record, name, RECORDED, 'best_third')):.1f}",
            f"{np.mean(_values(record, name, POLICY, 'target_return')):.1f}",
            _winner(record, name),
        )
        for name in names
    ]
    costs = [
        (
            name,
            f"{np.mean(_values(record, name, POLICY, 'updates')):.0f}",
            format_seconds(float(np.mean(_values(record, name, POLICY, "fit_cpu_seconds")))),
            format_bytes(_values(record, name, POLICY, "state_bytes")[0]),
            format_seconds(float(np.median(_values(record, name, POLICY, "action_seconds")))),
        )
        for name in names
    ]
    return [
        text_table(
            title="Return of fresh episodes, mean over seeds ± standard error over seeds",
            columns=("", "design", *CONTENDERS, "their best third", "asked for", "more collected by"),
            rows=shown,
            note="Every seed has a recording, a fit and fresh episodes of its own; both play the same "
            "episodes. A winner is named beyond two standard errors of the difference over all episodes.",
        ),
        text_table(
            title="What AarenPolicy costs",
            columns=("", "updates", "fit, CPU time", "state of an episode", "one action"),
            rows=costs,
        ),
        targets_table(targets(record), whole_run=COMMAND),
    ]


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what the defaults should reach."""
    pole = _returns(record, "CartPole-v1", POLICY)
    pole_clone = _returns(record, "CartPole-v1", CLONE)
    gap, noise = _gap(record, "Pendulum-v1")
    seconds = _values(record, "CartPole-v1", POLICY, "fit_cpu_seconds")
    return [
        judge(
            "Pendulum, policy - clone, in standard errors of the difference",
            "above 0",
            None if gap is None or noise is None else gap / max(noise, 1e-9),
            lambda found: found > 0.0,
            lambda found: f"{found:+.1f}",
        ),
        judge(
            "CartPole, policy - clone (500 is the most there is)",
            "at least 0",
            float(np.mean(pole) - np.mean(pole_clone)) if len(pole) else None,
            lambda found: found >= 0.0,
            lambda found: f"{found:+.1f}",
        ),
        judge(
            "CartPole, lowest mean return of a seed",
            f"at least {FULL_POLE:.0f}",
            min(pole) if len(pole) else None,
            lambda found: found >= FULL_POLE,
            lambda found: f"{found:.1f}",
        ),
        judge(
            "CartPole, slowest fit, CPU time",
            "under 60 s",
            max(seconds) if len(seconds) else None,
            lambda found: found < 60.0,
            format_seconds,
        ),
    ]


def _values(record: BenchRecord, name: str, contender: str, field: str) -> list[float]:
    return [
        number(row, field)
        for row in record.measurements
        if row["environment"] == name and row["contender"] == contender and row.get(field) is not None
    ]


def _returns(record: BenchRecord, name: str, contender: str) -> list[float]:
    return _values(record, name, contender, "return")


def _gap(record: BenchRecord, name: str) -> tuple[float | None, float | None]:
    """Return how much more the policy collects than the clone, and the standard error, over all episodes."""
    gaps: list[float] = []
    for row in record.measurements:
        if row["environment"] == name and row["contender"] == POLICY:
            other = record.find(environment=name, contender=CLONE, seed=row["seed"])
            assert other is not None
            played = [key for key in row if key.startswith("return_") and key in other]
            gaps += [number(row, key) - number(other, key) for key in played]
    if len(gaps) < 2:
        return None, None
    return float(np.mean(gaps)), float(np.std(gaps, ddof=1) / len(gaps) ** 0.5)


def _winner(record: BenchRecord, name: str) -> str:
    gap, noise = _gap(record, name)
    if gap is None or noise is None or not abs(gap) > 2.0 * noise:
        return "neither"
    return "AarenPolicy" if gap > 0.0 else "the clone"


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else "-"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.1f}"


BENCHMARK = Benchmark(
    kind="policy-estimator",
    command=COMMAND,
    settings=PolicyEstimatorSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
)

if __name__ == "__main__":
    main(BENCHMARK)
