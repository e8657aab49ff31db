"""DecisionModelConfig: what a policy model is made of; by default as published."""

from dataclasses import dataclass

from aaren.errors import ConfigError, unknown_name
from aaren.nn import EncoderConfig

MIXERS = ("aaren", "softmax")
ACTIONS = ("box", "discrete")


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionModelConfig:
    """What a `DecisionModel` is made of. Aaren and Transformer differ in one word: `mixer`.

    >>> DecisionModelConfig(state_size=4, action_size=2, mixer="softmacs")
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: unknown mixer 'softmacs'; did you mean 'softmax'? Known: aaren, softmax.
    """

    state_size: int  # numbers in an observation
    action_size: int  # numbers in an action, or how many discrete actions there are
    actions: str = "box"  # vectors between bounds, or "discrete": one of several, by classification
    width: int = 512
    num_heads: int = 4
    num_layers: int = 4
    ff_width: int | None = None  # default: 4 * width
    dropout: float = 0.1
    mixer: str = "aaren"  # or softmax: the Decision Transformer
    has_returns: bool = True  # False: behaviour cloning, the same network without return tokens
    max_steps: int = 4096  # rows of the timestep table; later steps use its last row
    context_steps: int = 20  # K: steps in a window, and between resets
    return_scale: float = 1000.0  # returns-to-go are divided by it
    target_return: float = 0.0  # what a session asks for unless told otherwise

    def __post_init__(self) -> None:
        """Report every setting that cannot be."""
        faults = [
            f"{name} must be at least 1; got {getattr(self, name)}"
            for name in ("state_size", "action_size", "max_steps", "context_steps")
            if getattr(self, name) < 1
        ]
        if not self.return_scale > 0.0:
            faults.append(f"return_scale must be above 0; got {self.return_scale}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        if self.actions not in ACTIONS:
            raise unknown_name("kind of actions", self.actions, ACTIONS)
        if self.mixer not in MIXERS:
            raise unknown_name("mixer", self.mixer, MIXERS)
        self.encoder  # noqa: B018  builds, and so checks, the encoder's config

    @property
    def is_discrete(self) -> bool:
        """Tell whether an action is one of several."""
        return self.actions == "discrete"

    @property
    def tokens_per_step(self) -> int:
        """Return how many tokens a step is: the action before it, (the return,) the state."""
        return 3 if self.has_returns else 2

    @property
    def encoder(self) -> EncoderConfig:
        """Return the encoder's config: dropout on the attention's result, none inside the feed-forward."""
        return EncoderConfig(
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            ff_width=self.ff_width,
            dropout=self.dropout,
            mixer=self.mixer,
            dropout_on="output",
            ff_inner_dropout=False,
        )
