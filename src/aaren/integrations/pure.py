"""PureStep: (state as bytes, raw row) to (state as bytes, answer): all that a stream engine has to call.

No file, no clock, no memory of its own: the engine keeps the bytes by key and calls in the order of the rows,
from any thread.
Kafka Streams and Flink can do the same through the C file of `aaren export --to c`.
"""

import io
import tempfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aaren.engine.use import open_rows
from aaren.errors import ConfigError, DataError, StateError
from aaren.nn.blocks import Layout, Words, words_from_bytes, words_to_bytes
from aaren.stream.pool import open_session
from aaren.stream.rows import RowPath


class PureStep:
    """The step of a trained run, for any engine that keeps bytes by key.

    Args:
        rows: the way of its rows.
        time: the field with the time of a row; "": the usual one of the setting.
    """

    def __init__(self, rows: RowPath, *, time: str = "") -> None:
        self.rows, self._clock = rows, time or rows.time
        self._guard = threading.Lock()  # of the session, in which one call at a time computes
        self._session = open_session(rows.model)
        self._layout, self._fingerprint = Layout(self._session.state), self._session.fingerprint
        self._empty = self._layout.pack(self._session.state)

    def __call__(self, state: bytes, row: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
        """Take in one row; the state of a new stream is b""."""
        new, (answer,) = self.many(state, [row])
        return new, answer

    def many(self, state: bytes, rows: Sequence[Mapping[str, Any]]) -> tuple[bytes, list[dict[str, Any]]]:
        """Take in rows of one stream in their order: all, or none if one is refused."""
        if not rows:
            return state, []
        words, count = self._open(state)
        read = [self.rows.read(row, self._clock) for row in rows]
        names = list(read[0][1])
        if any(list(others) != names for _, others in read):
            raise DataError("all rows of a call have the same fields.")
        items = np.asarray([item for item, _ in read])
        extras = {name: np.asarray([others[name] for _, others in read]) for name in names}
        with self._guard:
            answers = self._session.run(words, [1] * len(rows), items, **extras)
        block = words_to_bytes(words, self._layout, fingerprint=self._fingerprint, count=count + len(rows))
        return block, self.rows.answers(answers, rows, self._clock)

    def _open(self, state: bytes) -> tuple[Words, int]:
        """Return the state in bytes, and how many rows it has had."""
        if state == b"":
            return self._empty.copy(), 0
        words, count = words_from_bytes(state, self._layout, fingerprint=self._fingerprint)
        if len(words) != 1:
            raise StateError(f"expected the state of one stream; got {len(words)}.")
        return words, count


def pack_run(run: str | Path) -> bytes:
    """Return a finished run as bytes, to be sent to other machines: what was learned, not how it went."""
    folder = Path(run)
    if not (folder / "model").is_dir():
        raise ConfigError(f"{folder} is no folder of a finished run: give what `aaren train` wrote.")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and (name.startswith("model/") or name.endswith(".json")):
                archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return packed.getvalue()


@lru_cache(maxsize=4)
def open_packed(packed: bytes, time: str = "") -> PureStep:
    """Return the step of a packed run; opened once in a process."""
    with tempfile.TemporaryDirectory(prefix="aaren-run-") as folder:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            archive.extractall(folder)  # names are those that `pack_run` gave them
        torch.set_num_threads(1)  # an engine has a process for every core
        return PureStep(open_rows(Path(folder)), time=time)
