"""ClassifierSession: a stream whose answer is a probability for every class, after every step."""

from torch import Tensor

from aaren.models.classifier_state import ClassifierState
from aaren.models.session import Item, Session


class ClassifierSession(Session[ClassifierState]):
    """One or more streams being classified; made by `model.stream()`."""

    def push(self, item: Item, **extras: Item) -> Tensor:
        """Take in one step of every stream and return the class probabilities after it.

        Args:
            item: (b, channels), or without b in a session of one stream.
            **extras: `mask`, (b,) bool: streams with False got no step and repeat their answer.
        """
        return super().push(item, **extras).softmax(dim=-1)
