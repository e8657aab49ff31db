"""Labels as people have them, refused where no class can be told from them. Knows nothing of series."""

import numpy as np
from numpy.typing import NDArray

from aaren.errors import DataError

SHOWN = 6  # labels that an error names


def require_comparable(labels: NDArray[np.generic]) -> None:
    """Raise if a label is missing, or if labels are of types that cannot be sorted together."""
    if labels.dtype.kind != "O":
        return
    examples: dict[str, object] = {}
    for place, label in enumerate(labels.ravel().tolist()):
        if label is None:
            raise DataError(f"y: case {place} has no label (None). Leave it out, or give it one.")
        examples.setdefault(type(label).__name__, label)
    try:
        np.unique(labels)
    except TypeError as error:
        raise DataError(
            f"y holds labels of several types: {', '.join(sorted(examples))}, such as "
            f"{' and '.join(repr(examples[name]) for name in sorted(examples))}. Give all the same type: "
            f"y.astype(str)."
        ) from error


def require_seen(labels: NDArray[np.generic], classes: NDArray[np.generic]) -> None:
    """Raise if there are labels that are not among the classes, for they cannot be right."""
    require_comparable(labels)
    known = classes.tolist()
    strange = [label for label in np.unique(labels).tolist() if label not in known]
    if not strange:
        return
    cure = "Leave these cases out, or fit with cases of them."
    if {str(label) for label in strange} <= {str(label) for label in known}:
        cure = f"The same text, another type: y.astype({type(known[0]).__name__})."
    raise DataError(
        f"y holds labels unseen in fit: {', '.join(map(repr, strange[:SHOWN]))}; fit saw "
        f"{', '.join(map(repr, known[:SHOWN]))}. {cure}"
    )
