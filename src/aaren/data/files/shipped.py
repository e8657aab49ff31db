"""Datasets that come inside an installed dependency, so that a first run needs no download."""

import importlib.util
from pathlib import Path

_INSIDE_AEON = {
    f"JapaneseVowels_{part}.ts": f"datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts"
    for part in ("TRAIN", "TEST")
}


def shipped_file(name: str) -> Path | None:
    """Find a file inside a dependency without importing it; None when it is not there."""
    if name not in _INSIDE_AEON:
        return None
    found = importlib.util.find_spec("aeon")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / _INSIDE_AEON[name]
    return path if path.is_file() else None
