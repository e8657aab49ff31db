"""The messages of a package, stored in a text beside its tests; `AAREN_UPDATE=1 pytest FILE` writes it."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from aaren.errors import AarenError

UPDATE = "AAREN_UPDATE"


def check_messages(
    stored: Path, cases: Mapping[str, Callable[[], object]], *, hidden: Mapping[str, str]
) -> None:
    """Compare what each case raises with the stored text.

    Args:
        stored: the text.
        cases: calls by name.
        hidden: what differs between machines, and what stands for it.
    """
    lines = []
    for name, call in cases.items():
        with pytest.raises(AarenError) as caught:
            call()
        message = str(caught.value)
        for text, sign in hidden.items():
            message = message.replace(text, sign)
        lines.append(f"{name}\n    {type(caught.value).__name__}: {message}")
    text = "\n".join(lines) + "\n"
    if os.environ.get(UPDATE):
        stored.write_text(text)
    assert text == stored.read_text()
