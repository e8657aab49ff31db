"""Workers on a Ray cluster: one actor each, which carries out the same jobs in the same way.

A node that sees the results folder (a shared file system, or this machine) works in it, so that a run whose
worker was lost goes on elsewhere. A node that does not works in a folder of its own and sends the finished
run's files back. Needs the `cluster` extra.
"""

import os
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from aaren.errors import ConfigError, require_extra
from aaren.files.atomic import write_bytes
from aaren.lab.job import Job, Message, carry_out

if TYPE_CHECKING:
    from types import ModuleType


NEWS_SECONDS = 0.5  # between two questions how a run goes
KNOCK_SECONDS = 5.0
TOKEN = ".place"  # a file by which a node knows whether it sees the results folder


class Packet(Protocol):
    """A future of Ray."""


class _Remote(Protocol):
    def remote(self, *arguments: object) -> Packet: ...


class _Actor(Protocol):
    ready: _Remote
    run: _Remote
    news: _Remote
    pause: _Remote


class RayWorker:
    """What an actor does: one job at a time, while other calls ask how it goes."""

    def __init__(self) -> None:
        self.messages: deque[str] = deque()
        self.is_pausing = threading.Event()

    def ready(self) -> str:
        """Answer as soon as the actor is there."""
        return Message(event="ready").to_json()

    def run(self, line: str, token: str) -> tuple[str, dict[str, bytes]]:
        """Carry out a job; return how it ended, and the run's files if nobody else can see them."""
        job = Job.from_json(line)
        is_seen = sees(job.folder, token)
        there = job if is_seen else replace(job, folder=own_folder(job, token))
        last = carry_out(
            there, lambda message: self.messages.append(message.to_json()), self.is_pausing.is_set
        )
        return last.to_json(), {} if is_seen else pack(there.folder)

    def news(self) -> list[str]:
        """Hand over what was told since the last question."""
        told = []
        while self.messages:
            told.append(self.messages.popleft())
        return told

    def pause(self) -> None:
        """Let the run save a checkpoint and stop."""
        self.is_pausing.set()


class RayCrew:
    """Actors on a Ray cluster; see `aaren.lab.crew.Crew`."""

    def __init__(self, address: str, size: int, *, threads: int) -> None:
        self.size, self.threads = size, threads
        self.ray: ModuleType = require_extra("ray", extra="cluster", purpose="--ray")
        self.token = uuid.uuid4().hex
        self._actors: dict[int, _Actor] = {}
        self._waiting: dict[Packet, tuple[int, str]] = {}  # by future: a place, and which call it answers
        self._jobs: dict[int, Job] = {}
        self._asked: dict[int, float] = {}
        self._heard: deque[tuple[int, Message]] = deque()
        self._tokens: set[Path] = set()
        variables = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        variables |= {name: os.environ[name] for name in ("AAREN_DATA",) if name in os.environ}
        variables["OMP_NUM_THREADS"] = str(threads)
        _connect(self.ray, address, cpus=size * threads, variables=variables)

    def hire(self, place: int) -> None:
        """See Crew."""
        # Two calls at once: the run, and questions about it.
        remote = self.ray.remote(num_cpus=self.threads, max_concurrency=2, max_restarts=0)(RayWorker)
        actor = cast("_Actor", remote.remote())
        self._actors[place] = actor
        self._waiting[actor.ready.remote()] = (place, "ready")

    def give(self, place: int, job: Job) -> None:
        """See Crew."""
        job = replace(job, folder=job.folder.resolve())
        self._leave_token(job.folder.parent)
        self._jobs[place], self._asked[place] = job, time.monotonic()
        self._waiting[self._actors[place].run.remote(job.to_json(), self.token)] = (place, "run")

    def listen(self, seconds: float) -> tuple[int, Message] | None:
        """See Crew."""
        self._ask_for_news()
        if not self._heard and self._waiting:
            done, _ = self.ray.wait(list(self._waiting), num_returns=1, timeout=seconds)
            for future in done:
                self._receive(future)
        elif not self._heard:
            time.sleep(seconds)
        return self._heard.popleft() if self._heard else None

    def pause(self) -> None:
        """See Crew."""
        for actor in self._actors.values():
            actor.pause.remote()

    def close(self) -> None:
        """See Crew."""
        for actor in self._actors.values():
            self.ray.kill(actor)
        self._actors.clear()
        for path in self._tokens:
            path.unlink(missing_ok=True)
        self.ray.shutdown()

    def _ask_for_news(self) -> None:
        asked = {place for place, call in self._waiting.values() if call == "news"}
        for place in self._jobs:
            if place not in asked and time.monotonic() - self._asked[place] >= NEWS_SECONDS:
                self._asked[place] = time.monotonic()
                self._waiting[self._actors[place].news.remote()] = (place, "news")

    def _receive(self, future: Packet) -> None:
        place, call = self._waiting.pop(future)
        try:
            answer = self.ray.get(future)
        except self.ray.exceptions.RayError as error:
            self._lose(place, f"{type(error).__name__}: {str(error).splitlines()[0]}")
            return
        if call == "ready":
            self._heard.append((place, Message.from_json(answer)))
        elif call == "news":
            self._heard += [(place, Message.from_json(line)) for line in answer]
        else:
            last, files = answer
            unpack(files, self._jobs.pop(place).folder)
            self._heard.append((place, Message.from_json(last)))

    def _lose(self, place: int, text: str) -> None:
        """Forget an actor that died, and all that it still owed."""
        if self._actors.pop(place, None) is not None:
            self._waiting = {future: owed for future, owed in self._waiting.items() if owed[0] != place}
            self._jobs.pop(place, None)
            self._heard.append((place, Message(event="died", text=text)))

    def _leave_token(self, folder: Path) -> None:
        if folder / TOKEN not in self._tokens:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / TOKEN).write_text(self.token, encoding="utf-8")
            self._tokens.add(folder / TOKEN)


def cluster_cpus(address: str) -> int:
    """Return how many cores a cluster has in all."""
    ray = require_extra("ray", extra="cluster", purpose="--ray")
    _connect(ray, address, cpus=1, variables={})
    try:
        return int(ray.cluster_resources().get("CPU", 1))
    finally:
        ray.shutdown()


def _connect(ray: "ModuleType", address: str, *, cpus: int, variables: dict[str, str]) -> None:
    try:
        _knock(address)
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": variables},
            **({"num_cpus": cpus, "include_dashboard": False} if address == "local" else {}),
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"no Ray cluster answers at {address} ({str(error).splitlines()[0]}). Give --ray the address "
            "that `ray start --head` printed, `auto` on one of its nodes, or `local` to start one."
        ) from error


def _knock(address: str) -> None:
    """Fail within seconds where nobody listens: Ray itself goes on trying for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()


def sees(folder: Path, token: str) -> bool:
    """Say whether this node sees the results folder of whoever left the token beside a run's folder."""
    try:
        return (folder.parent / TOKEN).read_text(encoding="utf-8") == token
    except OSError:
        return False


def own_folder(job: Job, token: str) -> Path:
    """Return where a node that does not see the results folder works; the same for every try at a run."""
    return Path(tempfile.gettempdir()) / f"aaren-{token}" / job.config.setting / job.folder.name


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
