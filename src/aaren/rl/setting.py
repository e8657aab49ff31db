"""The setting as the engine sees it; everything heavy is imported when it is asked for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aaren.datasets.dataset import Fact
from aaren.engine.setting import Setting

if TYPE_CHECKING:
    from aaren.engine.experiment import Experiment
    from aaren.rl.batches import TrajectoryBatch
    from aaren.rl.config import RlConfig


class RlSetting(Setting["RlConfig", "TrajectoryBatch"]):
    """Offline reinforcement learning as the paper's section 4.1 and its base code do it."""

    name = "rl"
    title = "Reinforcement learning"
    short_title = "RL"
    report_note = (
        "Offline reinforcement learning in MuJoCo, D4RL's normalised score: 0 is random, 100 an expert. Rows "
        "named -regen are on regenerated data, because D4RL's own is unavailable: the published scores "
        "beside them are of another dataset and never mixed with ours. The paper does not say whether it "
        "reports the best evaluation or the last; both are here, and fresh episodes of the selected weights."
    )
    suffixes = (".hdf5", ".h5")
    saved_models = ("DecisionModel", "RandomPolicy", "BehaviourPolicy")
    reports = ("best.score", "last.score", "test.score", "test.return")
    higher_is_better = reports
    data_ids = "the id of a Minari dataset"

    @property
    def config_type(self) -> "type[RlConfig]":
        from aaren.rl.config import RlConfig

        return RlConfig

    def make_experiment(self, config: "RlConfig", *, seed: int) -> "Experiment[TrajectoryBatch]":
        from aaren.rl.experiment import RlExperiment, open_arena, open_trajectories

        data = open_trajectories(config)
        return RlExperiment(config, data, open_arena(config, data), seed=seed)

    def cell(self, config: "RlConfig") -> Mapping[str, str | int]:
        cell = {"dataset": config.dataset or Path(config.data_file).stem, "model": config.model}
        return cell if config.context == "window" else {**cell, "context": config.context}

    def check_file(self, path: Path, *, allow_irregular: bool = False) -> Mapping[str, Fact]:
        from aaren.rl.data import read

        del allow_irregular
        found = read(path)
        return {
            "trajectories": len(found),
            "transitions": found.num_transitions,
            "state_size": found.state_size,
            "action_size": found.action_size,
            "mean_return": round(float(found.returns.mean()), 1),
        }

    def shape(self, fact: Callable[[str], str], facts: Mapping[str, Fact]) -> str:
        del facts
        return f"{fact('transitions')} steps, {fact('state_size')} state, {fact('action_size')} action"


SETTING = RlSetting()
