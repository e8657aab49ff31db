"""The setting as the engine sees it; everything heavy is imported when it is asked for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from aaren.datasets.dataset import Fact
from aaren.engine.setting import SampleTable, Setting

if TYPE_CHECKING:
    from torch import nn

    from aaren.engine.experiment import Experiment, Json
    from aaren.rl.batches import TrajectoryBatch
    from aaren.rl.config import RlConfig
    from aaren.stream.rows import RowPath

_RETURN = "return_"  # and a number: the test metric of one fresh episode


class RlSetting(Setting["RlConfig", "TrajectoryBatch"]):
    """Offline reinforcement learning as the paper's section 4.1 and its base code do it."""

    name = "rl"
    title = "Reinforcement learning"
    short_title = "RL"
    grid_place = 3
    model_labels = MappingProxyType(
        {
            "behaviour": "the data's own",
            "random": "random actions",
        }
    )
    stand_in_note = "regenerated data"
    stand_in_origin = "D4RL"
    stand_in_remark = "Regenerated data: rolled out from public policies in MuJoCo -v4; it is not D4RL's."
    report_note = (
        "Offline reinforcement learning in MuJoCo, D4RL's normalised score: 0 is random, 100 an expert. Rows "
        "named -regen are on regenerated data, because D4RL's own is unavailable: the published scores "
        "beside them are of another dataset and never mixed with ours. The first number is of fresh episodes "
        "with the weights of the best evaluation; the paper does not say whether it reports the best "
        "evaluation or the last, so both follow."
    )
    suffixes = (".hdf5", ".h5")
    saved_models = ("DecisionModel", "RandomPolicy", "BehaviourPolicy", "ClonePolicy")
    # The best of several noisy evaluations is the luckiest: what leads is fresh episodes of its weights.
    reports = ("test.score", "best.score", "last.score", "test.return")
    higher_is_better = reports
    # A return is in a unit of its own for every environment: only where there is no normalised score.
    only_without = MappingProxyType({"test.return": "best.score"})
    # A policy's return differs from episode to episode at least as much as from seed to seed, so a t interval
    # over a few seeds leaves most of what is known unused.
    sample_table = SampleTable(
        name="episodes",
        title="Score of fresh episodes, bootstrap over seeds and episodes",
        report="test.score",
        baselines=MappingProxyType({"transformer": "Transformer"}),
        note="With one seed the interval does not include how much seeds differ: it is of these weights "
        "alone.",
    )
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

    def samples(self, metrics: Mapping[str, float | None], facts: "Mapping[str, Json]") -> list[float]:
        """Return the normalised scores of a run's fresh episodes; failed episodes have none."""
        from aaren.rl.environments import REFERENCE_RETURNS, normalised_score

        environment = str(facts.get("environment", ""))
        if environment.lower().partition("-")[0] not in REFERENCE_RETURNS:
            return []
        return [
            normalised_score(environment, float(value))
            for name, value in metrics.items()
            if name.startswith(_RETURN) and name.removeprefix(_RETURN).isdigit() and value is not None
        ]


SETTING = RlSetting()
