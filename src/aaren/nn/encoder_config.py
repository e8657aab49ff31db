"""EncoderConfig: every choice that a stack of blocks leaves open, those of the four base models included."""

from dataclasses import dataclass

from aaren.errors import ConfigError, unknown_name
from aaren.nn.inputs import require_divides, require_probability

MIXERS = ("aaren", "softmax", "gru", "lstm", "wkv")
ACTIVATIONS = ("gelu", "relu", "silu")


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig:
    """What an `Encoder` is made of. Aaren and its Transformer twin differ in one word: `mixer`.

    >>> EncoderConfig(width=64, num_heads=5)
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: num_heads must divide width: 64 is not a multiple of 5. Nearest that do: 4, 8.
    """

    width: int = 128  # model width c
    num_heads: int = 8  # must divide width; without meaning for gru, lstm, wkv
    num_layers: int = 2
    ff_width: int | None = None  # inner width of the feed-forward part; default: 4 * width
    dropout: float = 0.1  # on what mixer and feed-forward add to the residual stream
    norm: str = "post"  # "post": norm(x + f(x)), as all four base models; "pre": x + f(norm(x))
    activation: str = "gelu"
    mixer: str = "aaren"  # aaren, softmax (the Transformer), gru, lstm, wkv (RWKV-4)
    qkv_bias: bool = True
    out_bias: bool = True
    attention_dropout: float | None = None  # inside the mixer; default: the same as dropout
    dropout_on: str = (
        "weights"  # attention weights (forecasting, classification, events) or its "output" (rl)
    )
    ff_inner_dropout: bool = True  # also between the feed-forward part's two layers; rl: False
    norm_eps: float = 1e-5  # events: 1e-6
    final_norm: bool = False  # one more norm after the last block; forecasting, classification: True
    decay: str | None = None  # "learned": aaren only, every head learns how fast it forgets
    window: int | None = None  # softmax only: attend to this many latest items

    def __post_init__(self) -> None:
        """Report a setting that is unknown or contradicts another one."""
        if self.mixer in ("aaren", "softmax"):
            require_divides("num_heads", self.num_heads, "width", self.width)
        for name, size in (
            ("width", self.width),
            ("num_layers", self.num_layers),
            ("ff_width", self.ff_width),
        ):
            if size is not None and size < 1:
                raise ConfigError(f"{name} must be at least 1; got {size}.")
        for name, value in (("dropout", self.dropout), ("attention_dropout", self.attention_dropout)):
            if value is not None:
                require_probability(name, value)
        for kind, name, known in (
            ("mixer", self.mixer, MIXERS),
            ("activation", self.activation, ACTIVATIONS),
            ("norm", self.norm, ("post", "pre")),
            ("dropout_on", self.dropout_on, ("weights", "output")),
        ):
            if name not in known:
                raise unknown_name(kind, name, known)
        if self.decay not in (None, "learned"):
            raise unknown_name("decay", str(self.decay), ["learned"])
        if self.decay is not None and self.mixer != "aaren":
            raise ConfigError(f"decay={self.decay!r} needs mixer='aaren'; got mixer={self.mixer!r}.")
        if self.window is not None and (self.mixer != "softmax" or self.window < 1):
            raise ConfigError(
                f"window={self.window} must be at least 1 and needs mixer='softmax', got "
                f"mixer={self.mixer!r}: a sum cannot give back what it took in. To let an Aaren forget, use "
                f"decay='learned'."
            )

    @property
    def inner_width(self) -> int:
        """Return the feed-forward part's inner width, its default resolved."""
        return 4 * self.width if self.ff_width is None else self.ff_width

    @property
    def mixer_dropout(self) -> float:
        """Return the dropout inside the mixer, its default resolved."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout
