"""RlConfig: which recorded episodes, which model, asked for which return; by default as published."""

from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from aaren.engine.optimiser import OptimiserConfig
from aaren.errors import ConfigError, too_small
from aaren.rl.model import DecisionModelConfig

ModelName: TypeAlias = Literal["aaren", "transformer", "behaviour", "random"]
ContextName: TypeAlias = Literal["window", "carried", "reset"]
REFERENCES = ("behaviour", "random")  # nothing to train


@dataclass(frozen=True, kw_only=True, slots=True)
class RlNetworkConfig:
    """The sizes that all trained models share (see `DecisionModelConfig`)."""

    width: int = 512
    num_heads: int = 4
    num_layers: int = 4
    dropout: float = 0.1
    max_steps: int = 4096  # rows of the timestep table
    timestep_std: float = 1.0  # of its initial numbers; 1: as published


@dataclass(frozen=True, kw_only=True, slots=True)
class RlConfig:
    """One experiment with recorded episodes, evaluated by acting in the environment."""

    dataset: str = ""  # a name of the catalogue
    data_file: str = ""  # or the user's own .npz, .hdf5 (D4RL), or the id of a Minari dataset
    environment: str = ""  # Gymnasium id; empty: the data's own
    drop_short: bool = False  # own data: leave out episodes of one step instead of refusing them
    max_trajectories: int | None = None  # only the first so many
    model: ModelName = "aaren"
    network: RlNetworkConfig = field(default_factory=RlNetworkConfig)
    context: ContextName = "window"  # what the policy sees while it acts
    context_steps: int = 20  # K: steps of a window, in training and acting, and between resets
    sampling: Literal["trajectory", "length"] = "trajectory"  # each equally likely, or in proportion
    asks_for: Literal["published", "best"] = "published"  # best: the best return of the data
    target_return: float | None = None  # none: as asks_for says; where nothing is published, the best
    target_scale: float = 1.0  # asks for so many times that
    return_scale: float | None = None  # none: 1000 for the published robots, elsewhere the largest return
    optimiser: OptimiserConfig = field(
        default_factory=lambda: OptimiserConfig(name="adamw", learning_rate=1e-4, weight_decay=1e-4)
    )
    warm_up: int = 10_000  # updates until the full learning rate
    rate_falls: bool = False  # from then on in a straight line to 0 at the last update; False: it stays
    clip_norm: float = 0.25
    batch_size: int = 64
    updates: int = 20_000
    evaluations: int = 200  # evenly spread over the updates
    episodes: int = 10  # in each evaluation, side by side
    episode_steps: int | None = None  # none: the environment's own limit

    def __post_init__(self) -> None:
        """Report every fault of these settings together."""
        faults = []
        if bool(self.dataset) == bool(self.data_file):
            faults.append("name either a dataset or a data_file")
        faults += too_small(self, context_steps=1, warm_up=1, batch_size=1, updates=1)
        faults += too_small(self, evaluations=1, episodes=1)
        for name in ("max_trajectories", "episode_steps", "return_scale"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                faults.append(f"{name} must be above 0, or none; got {value}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        self.model_config(state_size=1, action_size=1, actions="box", return_scale=1.0, target_return=0.0)

    @property
    def is_reference(self) -> bool:
        """Tell whether there is nothing to train."""
        return self.model in REFERENCES

    def model_config(
        self, *, state_size: int, action_size: int, actions: str, return_scale: float, target_return: float
    ) -> DecisionModelConfig:
        """Return the config of the model for an environment of these sizes."""
        return DecisionModelConfig(
            state_size=state_size,
            action_size=action_size,
            actions=actions,
            mixer="softmax" if self.model == "transformer" else "aaren",
            context_steps=self.context_steps,
            return_scale=return_scale,
            target_return=target_return,
            **asdict(self.network),
        )
