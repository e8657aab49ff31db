"""The one legend of axis letters, and names for the tensors that carry them.

Everywhere: b batch · t time · h heads · d head width · c model width · q queries.
The aliases are plain `Tensor`: they tell a reader the axes and cost nothing at run time.
"""

from typing import TypeAlias

from torch import Tensor

Scores: TypeAlias = Tensor  # (b, t, h)     one number per item and head
Values: TypeAlias = Tensor  # (b, t, h, d)  one vector per item and head
Mask: TypeAlias = Tensor  # (b, t) bool     True = real, False = padding
LogDecay: TypeAlias = Tensor  # (b, t, h)   <= 0, applied to the state before the item

Activations: TypeAlias = Tensor  # (b, t, c)  a sequence inside a model
Token: TypeAlias = Tensor  # (b, c)        one item of it
TokenMask: TypeAlias = Tensor  # (b,) bool     True = this stream got an item
