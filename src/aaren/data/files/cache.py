"""Keep what took long to parse as plain arrays in the user's cache folder.

An entry belongs to one content, by its checksum, and to one version of the parser; anything else is parsed
anew. A cache that cannot be read or written costs time, never correctness.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.data.files.atomic import replacing
from aaren.data.files.folders import cache_folder

Arrays: TypeAlias = dict[str, NDArray[np.generic]]


def cached(sha256: str, version: str, build: Callable[[], Mapping[str, NDArray[np.generic]]]) -> Arrays:
    """Return the arrays that `build` makes of the content with this checksum, or the cache's copy of them."""
    kind = version.partition(" ")[0]
    key = hashlib.sha256(f"{version}\n{sha256}".encode()).hexdigest()[:32]
    entry = cache_folder() / "parsed" / f"{kind}-{key}.npz"
    try:
        with entry.open("rb") as handle, np.load(handle, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception:  # absent or damaged, in whichever way: parse again
        pass
    arrays = dict(build())
    try:
        with replacing(entry) as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)
    except OSError:
        pass  # a full or closed disk must not stop a run
    return arrays
