"""ClassifierConfig: what a classifier of series is made of. The defaults are the published ones."""

from dataclasses import dataclass

from aaren.errors import require_at_least, unknown_name
from aaren.nn import EncoderConfig

EMBEDDINGS = ("circular", "causal")
HEADS = ("flattened", "pooled")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierConfig:
    """What a `Classifier` is made of.

    `embedding="circular"` is the Time-Series-Library's convolution: centred, and its ends see each other. It
    gives the published comparison and cannot go along a stream. `"causal"` sees the past alone and can.

    `head="flattened"` is the published one, with weights for every step up to `length`; `"pooled"` takes the
    mean over time, and together with the causal embedding knows no positions either: streams of any length.

    >>> ClassifierConfig(num_channels=12, num_classes=9, length=29, head="mean")
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: unknown head 'mean'; Known: flattened, pooled.
    """

    num_channels: int  # numbers in a step
    num_classes: int
    length: int  # steps of the longest series; only the pooled head takes longer ones
    width: int = 128
    num_heads: int = 8
    ff_width: int = 256
    num_layers: int = 3
    dropout: float = 0.1
    activation: str = "gelu"
    mixer: str = "aaren"  # or softmax: the Transformer
    embedding: str = "circular"
    head: str = "flattened"

    def __post_init__(self) -> None:
        """Report a setting that is unknown or contradicts another one."""
        for kind, name, known in (("embedding", self.embedding, EMBEDDINGS), ("head", self.head, HEADS)):
            if name not in known:
                raise unknown_name(kind, name, known)
        require_at_least(self, num_channels=1, num_classes=2, length=1)
        self.encoder  # noqa: B018  builds, and so checks, the encoder's config

    @property
    def is_causal(self) -> bool:
        """Tell whether the model can go along a stream."""
        return self.embedding == "causal"

    @property
    def has_positions(self) -> bool:
        """Tell whether a step knows its number; a stream without end has no use for numbers never seen."""
        return not (self.is_causal and self.head == "pooled")

    @property
    def encoder(self) -> EncoderConfig:
        """Return the encoder's config."""
        return EncoderConfig(
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            ff_width=self.ff_width,
            dropout=self.dropout,
            activation=self.activation,
            mixer=self.mixer,
            final_norm=True,
        )
