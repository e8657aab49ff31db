"""ClassificationConfig: which series, model and reporting rule, trained how. The defaults are the paper's."""

from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from aaren.classification.baselines import REFERENCES, ReferenceClassifier, ReferenceClassifierConfig
from aaren.classification.data import HELD_OUT
from aaren.classification.model import Classifier, ClassifierConfig
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Schedule, constant, halving
from aaren.errors import ConfigError, too_small

ModelName: TypeAlias = Literal[
    "aaren",
    "transformer",
    "aaren-causal",
    "transformer-causal",
    "aaren-features",  # random convolutions pooled by Aaren, solved in closed form
    "majority",
    "dtw",
    "minirocket",
]
Rule: TypeAlias = Literal["protocol", "clean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkConfig:
    """The sizes that both trained models share."""

    width: int = 128
    num_heads: int = 8
    ff_width: int = 256
    num_layers: int = 3
    dropout: float = 0.1
    head: Literal["flattened", "pooled"] = "flattened"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassificationConfig:
    """One classification experiment.

    The reporting rule says how the epoch is chosen whose weights are kept. `protocol` is what was published:
    by TEST, so the reported accuracy is the best over all epochs, which is optimistic. `clean` chooses by a
    held-out part of TRAIN and evaluates on TEST once.
    """

    dataset: str = ""  # a name of the catalogue
    data_file: str = ""  # or the user's own NAME_TRAIN.ts, with NAME_TEST.ts beside it if there is one
    allow_irregular: bool = False  # own file: interpolate missing values, thin out uneven channels
    model: ModelName = "aaren"
    rule: Rule = "protocol"
    standardise: Literal["protocol", "train"] = "protocol"  # each part by its own statistics, or by TRAIN's
    held_out: float = HELD_OUT  # of TRAIN: to choose the epoch (clean), and to test where there is no TEST
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimiser: OptimiserConfig = field(
        default_factory=lambda: OptimiserConfig(name="radam", learning_rate=1e-3)
    )
    schedule: Literal["halving", "constant"] = "halving"  # halving: after every 5th epoch e, 0.5^(e - 1)
    batch_size: int = 16
    epochs: int = 100  # at most; fewer where the schedule leaves nothing to learn, see `epochs_in_motion`
    updates_per_epoch: int | None = None  # at most; an epoch is then a random part of TRAIN
    patience: int = 10  # epochs without improvement; a tie is an improvement
    clip_norm: float = 4.0

    def __post_init__(self) -> None:
        """Report every fault of these settings together."""
        faults = []
        if self.dataset and self.data_file:
            faults.append("name either a dataset or a data_file, not both")
        faults += too_small(self, batch_size=1, epochs=1, patience=1)
        if self.updates_per_epoch is not None and self.updates_per_epoch < 1:
            faults.append(f"updates_per_epoch must be at least 1 or none; got {self.updates_per_epoch}")
        if not 0.0 < self.held_out < 1.0:
            faults.append(f"held_out is a part of TRAIN, above 0 and below 1; got {self.held_out}")
        if self.is_causal and self.standardise == "protocol":
            faults.append(
                f"model {self.model!r} runs on streams, whose own statistics are unknown beforehand: "
                f"set standardise=train"
            )
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        if self.is_trained:
            self.network_config(num_channels=1, num_classes=2, length=1)  # its own checks

    @property
    def is_reference(self) -> bool:
        """Tell whether the model is a baseline."""
        return self.model in REFERENCES

    @property
    def is_trained(self) -> bool:
        """Tell whether the model is trained step by step."""
        return not self.is_reference and self.model != "aaren-features"

    @property
    def is_causal(self) -> bool:
        """Tell whether the model can be streamed."""
        return self.model.endswith("-causal") or self.model == "aaren-features"

    @property
    def recipe(self) -> str:
        """Name optimiser and schedule; the Time-Series-Library has had three."""
        return f"{self.optimiser.name}-{self.schedule}"

    @property
    def factors(self) -> Schedule:
        """Return the factor on the learning rate over time."""
        return halving(every_epochs=5) if self.schedule == "halving" else constant

    def network_config(self, *, num_channels: int, num_classes: int, length: int) -> ClassifierConfig:
        """Return the config of the trained model for series of this kind."""
        return ClassifierConfig(
            num_channels=num_channels,
            num_classes=num_classes,
            length=length,
            mixer="softmax" if self.model.startswith("transformer") else "aaren",
            embedding="causal" if self.is_causal else "circular",
            **asdict(self.network),
        )

    def build_model(
        self, *, num_channels: int, num_classes: int, length: int, num_cases: int, seed: int
    ) -> Classifier | ReferenceClassifier:
        """Build the untrained model for series of this kind."""
        if not self.is_reference:
            return Classifier(
                self.network_config(num_channels=num_channels, num_classes=num_classes, length=length)
            )
        return ReferenceClassifier(
            ReferenceClassifierConfig(
                kind=self.model,
                num_channels=num_channels,
                num_classes=num_classes,
                length=length,
                num_cases=num_cases,
                seed=seed,
            )
        )
