"""The setting as the engine sees it; everything heavy is imported when it is asked for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from aaren.datasets.dataset import Fact
from aaren.engine.setting import Setting

if TYPE_CHECKING:
    from torch import nn

    from aaren.engine.experiment import Experiment, Json
    from aaren.rl.batches import TrajectoryBatch
    from aaren.rl.config import RlConfig
    from aaren.stream.rows import RowPath


class RlSetting(Setting["RlConfig", "TrajectoryBatch"]):
    """Offline reinforcement learning as the paper's section 4.1 and its base code do it."""

    name = "rl"
    grid_place = 3
    suffixes = (".hdf5", ".h5")
    saved_models = ("DecisionModel", "RandomPolicy", "BehaviourPolicy", "ClonePolicy")
    # The best of several noisy evaluations is the luckiest: what leads is fresh episodes of its weights.
    reports = ("test.score", "best.score", "last.score", "test.return")
    higher_is_better = reports
    protocols = MappingProxyType({"cpu": 3})  # docs/rl.md says what each number means
    data_ids = "the id of a Minari dataset"

    @property
    def config_type(self) -> "type[RlConfig]":
        from aaren.rl.config import RlConfig

        return RlConfig

    def make_experiment(self, config: "RlConfig", *, seed: int) -> "Experiment[TrajectoryBatch]":
        from aaren.rl.experiment import RlExperiment, open_simulator, open_trajectories

        data = open_trajectories(config)
        return RlExperiment(config, data, open_simulator(config, data), seed=seed)

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
        return f"{fact('transitions')} steps, {fact('state_size')} × {fact('action_size')}"

    def stream_rows(self, model: "nn.Module", preprocessing: "Mapping[str, Json]") -> "RowPath":
        del preprocessing
        from aaren.rl.session import ObservationRows

        return ObservationRows(model)


SETTING = RlSetting()
