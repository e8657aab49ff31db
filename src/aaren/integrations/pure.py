"""PureStep: (state as bytes, raw row) to (state as bytes, answer): all that a stream engine has to call.

No file, no clock, no memory of its own: the engine keeps the bytes by key and calls in the order of the rows,
from any thread.
Kafka Streams and Flink can do the same through the C file of `aaren export --to c`.
"""

import hashlib
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

from aaren.engine.lines import open_rows
from aaren.errors import ConfigError, DataError, StateError
from aaren.stream.layout import StateLayout
from aaren.stream.rows import RowPath

MARK_BYTES = 8  # in front of a state: whose it is


class PureStep:
    """The step of a trained run, for any engine that keeps bytes by key.

    Args:
        rows: the way of its rows.
        time: the field with the time of a row; "": the usual one of the setting.
    """

    def __init__(self, rows: RowPath, *, time: str = "") -> None:
        self.rows, self._clock = rows, time or rows.time
        self._guard = threading.Lock()  # of the session, in which one call at a time computes
        self._session = rows.model.stream(1)
        self._layout = StateLayout(self._session.state)
        whose = f"{self._session.model.fingerprint()} {self._layout.describe()}"
        self._mark = hashlib.sha256(whose.encode()).digest()[:MARK_BYTES]

    def __call__(self, state: bytes, row: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
        """Take in one row; the state of a new stream is b""."""
        new, (answer,) = self.many(state, [row])
        return new, answer

    def many(self, state: bytes, rows: Sequence[Mapping[str, Any]]) -> tuple[bytes, list[dict[str, Any]]]:
        """Take in rows of one stream in their order: all, or none if one is refused."""
        if not rows:
            return state, []
        block = self._open(state)
        read = [self.rows.read(row, self._clock) for row in rows]
        items = [item for item, _ in read]
        names = list(read[0][1])
        if any(list(others) != names for _, others in read):
            raise DataError("all rows of a call have the same fields.")
        extras = {name: [others[name] for _, others in read] for name in names}
        with self._guard:
            answers, block = self._step(block, items, extras)
        return self._mark + block.numpy().tobytes(), self.rows.answers(answers, rows, self._clock)

    def _step(
        self, block: torch.Tensor, items: list[Any], extras: Mapping[str, list[Any]]
    ) -> tuple[list[Any], torch.Tensor]:
        """Return the answers after each item, and the state after the last."""
        arrays: dict[str, Any] = {name: np.asarray(values) for name, values in extras.items()}
        found = self._session.push_turns(
            block, self._layout.parts, [1] * len(items), np.asarray(items), **arrays
        )
        if found is not None:
            return list(found), block
        self._session.batch_size = 1
        self._session.state = self._layout.unpack(block)
        answers = []
        for place, item in enumerate(items):
            one = {name: [values[place]] for name, values in extras.items()}
            answers.append(self._session.push([item], **one)[0])
        return answers, self._layout.pack(self._session.state)

    def _open(self, state: bytes) -> torch.Tensor:
        if not state:
            return self._layout.empty.clone()
        if state[:MARK_BYTES] != self._mark or len(state) != MARK_BYTES + self._layout.nbytes:
            raise StateError(
                "these bytes are no state of this model: keep them with the weights that made them, or begin "
                'with b"".'
            )
        return torch.frombuffer(bytearray(state[MARK_BYTES:]), dtype=torch.uint8).view(1, -1)


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
