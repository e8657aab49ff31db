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

from aaren.rl import AarenPolicy
from aaren.rl.data import CONTROL_SETS, ControlSet, record_episodes
from harness import Benchmark, Measured, OnStep, main, table
from records import BenchRecord, Row, Setting, number

DATA_SEED = 1_000  # of the first recording; the design was chosen on others
POLICY, CLONE, RECORDED = "AarenPolicy", "clone of the best third", "recorded episodes"
CONTENDERS = (POLICY, CLONE, RECORDED)
TUNED_ON, KEPT_ASIDE = ("CartPole-v1", "Pendulum-v1"), ("Acrobot-v1", "MountainCarContinuous-v0")


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
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        policy.fit(data, environment=name)
    fit = {
        "fit_cpu_seconds": time.process_time() - begin,
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
            session = policy.stream()
            session.push(data.observations[0])
            row |= {**fit, "target_return": policy.target_return_, "state_bytes": session.state.nbytes}
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


def tables(record: BenchRecord) -> list[str]:
    """Return returns by environment, and costs."""
    shown, costs = [], []
    for name in [name for name in SETS if record.find(environment=name) is not None]:
        design = "chosen on" if name in TUNED_ON else "kept aside"
        returns = (_spread(_values(record, name, contender, "return")) for contender in CONTENDERS)
        shown.append([name, design, *returns, _winner(record, name)])
        fit = float(np.median(_values(record, name, POLICY, "fit_cpu_seconds")))
        costs.append([name, f"{fit:.1f} s", f"{_values(record, name, POLICY, 'state_bytes')[0]:,.0f} bytes"])
    return [
        table(
            "Return of fresh episodes, mean over seeds \N{PLUS-MINUS SIGN} standard error over seeds",
            ["", "design", *CONTENDERS, "more collected by"],
            shown,
            note="Every seed has a recording, a fit and fresh episodes of its own; both play the same "
            "episodes. A winner is named beyond two standard errors of the difference over all episodes.",
        ),
        table("What AarenPolicy costs", ["", "fit, CPU time", "state of an episode"], costs),
    ]


def _values(record: BenchRecord, name: str, contender: str, field: str) -> list[float]:
    return [
        number(row, field)
        for row in record.measurements
        if row["environment"] == name and row["contender"] == contender and row.get(field) is not None
    ]


def _winner(record: BenchRecord, name: str) -> str:
    """Compare policy and clone over all episodes, which both played."""
    gaps: list[float] = []
    for row in record.measurements:
        other = record.find(environment=name, contender=CLONE, seed=row["seed"])
        if row["environment"] == name and row["contender"] == POLICY and other is not None:
            played = [key for key in row if key.startswith("return_") and key in other]
            gaps += [number(row, key) - number(other, key) for key in played]
    if len(gaps) < 2 or abs(np.mean(gaps)) <= 2.0 * np.std(gaps, ddof=1) / len(gaps) ** 0.5:
        return "neither"
    return "AarenPolicy" if np.mean(gaps) > 0.0 else "the clone"


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else "-"
    return f"{np.mean(values):.1f} \N{PLUS-MINUS SIGN} {np.std(values, ddof=1) / len(values) ** 0.5:.1f}"


BENCHMARK = Benchmark(
    kind="policy-estimator",
    command="python benchmarks/policy_estimator.py",
    sources=("aaren/rl", "aaren/nn"),
    settings=PolicyEstimatorSettings(),
    quick=PolicyEstimatorSettings(
        environments=("CartPole-v1",), seeds=(0,), recorded=12, episodes=2, updates=10
    ),
    measure=measure,
    tables=tables,
    is_timed=False,
)

if __name__ == "__main__":
    main(BENCHMARK)
