"""Ready-made runs of reinforcement learning: dataset x model x profile x context.

paper   the published size and hyper-parameters: 20,000 updates, 200 evaluations of 10 episodes
cpu     the same protocol, smaller: some five minutes on one core, 4 evaluations of 30 episodes included
smoke   a smoke test of seconds; meant for the generated sets `pendulum` and `cartpole`
"""

from dataclasses import replace
from typing import cast, get_args

from aaren.datasets.catalogue import DATASETS
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.presets import dataset_name
from aaren.engine.setting import CellGroup
from aaren.errors import unknown_name
from aaren.rl.config import ContextName, ModelName, RlConfig, RlNetworkConfig

CONTEXTS: tuple[str, ...] = get_args(ContextName)


def preset(
    dataset: str,
    *,
    model: str = "aaren",
    profile: str = "cpu",
    data_file: str = "",
    context: str = "window",
) -> RlConfig:
    """Return the config of one cell of the table.

    Args:
        dataset: A name of the catalogue, in any spelling of capitals; empty with a data_file.
        model: A `ModelName`.
        profile: paper, cpu or smoke.
        data_file: An npz or D4RL HDF5 file of the user's own, or the id of a Minari dataset.
        context: window, carried or reset: what the policy sees while it acts.
    """
    if context not in CONTEXTS:
        raise unknown_name("context", context, CONTEXTS)
    task = RlConfig(
        dataset=dataset_name(dataset, "rl"),
        data_file=data_file,
        model=cast("ModelName", model),
        context=cast("ContextName", context),
    )
    if profile == "cpu":
        task = _cpu(task)
    elif profile == "smoke":
        task = _smoke(task)
    return task


def grid(profile: str) -> tuple[CellGroup, ...]:
    """Return the table on D4RL's sets and on those made in their place, and what else is asked of policies.

    Of sets with good and bad episodes: do they collect the return they are asked for? Of two robots: what
    changes with what they may see while they act?
    """
    both, references = ("aaren", "transformer"), ("behaviour", "random")
    if profile == "smoke":
        # No row of the data's own returns: its episodes are longer than those that are played here.
        return (
            CellGroup(datasets=("cartpole",), models=(*both, "random")),
            CellGroup(datasets=("cartpole",), models=both, sweeps=("target_scale=0.5,1",)),
        )
    published = tuple(row.name for row in DATASETS if row.setting == "rl")
    made = tuple(f"{name}-regen" for name in published)
    mixed = tuple(name for name in (*made, *published) if "replay" in name or "expert" in name)
    seen = ("hopper-medium-regen", "halfcheetah-medium-regen")
    return (
        CellGroup(datasets=(*made, *published), models=(*both, *references), seedless=("behaviour",)),
        CellGroup(datasets=mixed, models=both, sweeps=("target_scale=0.25,0.5,0.75,1,1.25",)),
        CellGroup(datasets=seen, models=both, sweeps=("context=window,carried,reset",)),
    )


def _cpu(task: RlConfig) -> RlConfig:
    return replace(
        task,
        network=RlNetworkConfig(width=64, num_heads=4, num_layers=3, dropout=0.0, timestep_std=0.02),
        asks_for="best",  # 6,000, as published, is half of what the expert's episodes of HalfCheetah collect
        optimiser=OptimiserConfig(name="adamw", learning_rate=1e-3, weight_decay=1e-4),
        warm_up=200,
        rate_falls=True,  # many small updates that end calm, for the price of 2,400 of 64 windows: docs/rl.md
        batch_size=16,
        updates=8_000,
        evaluations=4,
        episodes=30,  # returns of episodes differ by up to 24 points of score: a standard error of 4.4
    )


def _smoke(task: RlConfig) -> RlConfig:
    return replace(
        task,
        network=RlNetworkConfig(width=16, num_heads=2, num_layers=1),
        optimiser=OptimiserConfig(name="adamw", learning_rate=3e-3, weight_decay=1e-4),
        context_steps=5,
        warm_up=5,
        batch_size=16,
        updates=30,
        evaluations=2,
        episodes=2,
        episode_steps=50,
    )
