"""Workers on a Ray cluster: one remote function, which carries out a run as a local worker does.

A node that sees the results folder (a shared file system, or this machine) works in it, so that a run whose
worker was lost resumes elsewhere. A node that does not works in a folder of its own and sends the finished
run's files back. Needs the `cluster` extra.
"""

import os
import socket
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from aaren.errors import ConfigError, require_extra
from aaren.files.atomic import write_bytes
from aaren.lab.plan import PlannedRun
from aaren.lab.records import append
from aaren.lab.workers import Ended, carry_out

if TYPE_CHECKING:
    from types import ModuleType


ASK_SECONDS = 1.0  # between two questions whether to pause
CONNECT_SECONDS = 5.0
TOKEN = ".grid-token"  # beside the runs: by it a node knows that it sees the results, and whether to pause
_LOST = -1  # the exit code of a task whose process is gone

Answer: TypeAlias = tuple[int, str, list[str], dict[str, bytes]]  # exit code, error, notes, files


class _Future(Protocol):
    """A future of Ray."""


def run_task(run: PlannedRun, threads: int, token: str) -> Answer:
    """Carry out a run on a node; return how it ended, and the run's files if the node does not share them."""
    is_seen = _read_token(run.folder) == token
    there = run if is_seen else replace(run, folder=own_folder(run, token))
    notes: list[str] = []
    asked = [time.monotonic()]

    def is_pause_wanted() -> bool:
        if not is_seen or time.monotonic() - asked[0] < ASK_SECONDS:
            return False
        asked[0] = time.monotonic()
        return _read_token(run.folder) != token

    code, error = carry_out(there, threads=threads, is_pause_wanted=is_pause_wanted, say=notes.append)
    return int(code), error, notes, {} if is_seen else pack(there.folder)


class RayWorkers:
    """Tasks on a Ray cluster; see `aaren.lab.workers.Workers`."""

    def __init__(self, address: str, size: int, *, threads: int) -> None:
        self.size, self.threads = size, threads
        self.ray: ModuleType = require_extra("ray", extra="cluster", purpose="--set ray=...")
        self.token = uuid.uuid4().hex
        self._runs: dict[_Future, PlannedRun] = {}
        self._tokens: set[Path] = set()
        variables = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        variables |= {name: os.environ[name] for name in ("AAREN_DATA",) if name in os.environ}
        variables["OMP_NUM_THREADS"] = str(threads)
        _connect(self.ray, address, cpus=size * threads, variables=variables)
        self._task = self.ray.remote(num_cpus=threads, max_retries=0)(run_task)

    def submit(self, run: PlannedRun) -> None:
        there = replace(run, folder=run.folder.resolve())
        path = there.folder.parent / TOKEN
        if path not in self._tokens:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.token, encoding="utf-8")
            self._tokens.add(path)
        self._runs[self._task.remote(there, self.threads, self.token)] = run

    def wait(self, seconds: float) -> list[Ended]:
        if not self._runs:
            time.sleep(seconds)
            return []
        done, _ = self.ray.wait(list(self._runs), num_returns=1, timeout=seconds)
        return [self._ended(future, self._runs.pop(future)) for future in done]

    def pause(self) -> None:
        for path in self._tokens:
            path.write_text("pause", encoding="utf-8")

    def kill(self, folder: Path) -> None:
        for future, run in self._runs.items():
            if run.folder == folder:
                self.ray.cancel(future, force=True)

    def close(self) -> None:
        for future in self._runs:
            self.ray.cancel(future, force=True)
        self._runs.clear()
        for path in self._tokens:
            path.unlink(missing_ok=True)
        self.ray.shutdown()

    def _ended(self, future: _Future, run: PlannedRun) -> Ended:
        try:
            code, error, notes, files = self.ray.get(future)
        except self.ray.exceptions.RayError as lost:
            return Ended(run.folder, _LOST, f"{type(lost).__name__}: {str(lost).splitlines()[0]}")
        if files:
            unpack(files, run.folder)
            append(run.folder)
        return Ended(run.folder, code, error, notes)


def own_folder(run: PlannedRun, token: str) -> Path:
    """Return where a node that does not see the results folder works; the same for every try at a run."""
    return Path(tempfile.gettempdir()) / f"aaren-{token}" / run.config.setting / run.folder.name


def pack(folder: Path) -> dict[str, bytes]:
    """Read a run's files, checkpoints left out, by their names inside the folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock" and "checkpoints" not in path.relative_to(folder).parts
    }


def unpack(files: dict[str, bytes], folder: Path) -> None:
    """Write what `pack` read; the record last, because it says that all is there."""
    for name in sorted(files, key=lambda name: name == "record.json"):
        write_bytes(folder / name, files[name])


def cluster_cpus(address: str) -> int:
    """Return how many cores a cluster has in all."""
    ray = require_extra("ray", extra="cluster", purpose="--set ray=...")
    _connect(ray, address, cpus=1, variables={})
    try:
        return int(ray.cluster_resources().get("CPU", 1))
    finally:
        ray.shutdown()


def _connect(ray: "ModuleType", address: str, *, cpus: int, variables: dict[str, str]) -> None:
    try:
        _require_listener(address)
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": variables},
            **({"num_cpus": cpus, "include_dashboard": False} if address == "local" else {}),
        )
    except Exception as error:  # Ray raises a bare one for a node that does not come up in time
        raise ConfigError(
            f"no Ray cluster answers at {address} ({str(error).splitlines()[0]}). Give --set ray= "
            "an address that `ray start --head` printed, `auto` on one of its nodes, or `local` to start one."
        ) from error


def _require_listener(address: str) -> None:
    """Fail within seconds where nothing answers: Ray itself retries for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _read_token(folder: Path) -> str:
    """Read the token beside a run's folder; nothing on a node that does not see it."""
    try:
        return (folder.parent / TOKEN).read_text(encoding="utf-8")
    except OSError:
        return ""
