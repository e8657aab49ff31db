"""A fresh process that answers its parent: what it measures of its memory is its own.

It is forked from a server that has torch loaded, which takes milliseconds. While nobody asks, it sleeps.
"""

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from aaren.errors import AarenError


class MemoryExhaustedError(AarenError, MemoryError):
    """The system ended the measuring process, most likely for want of memory."""


class Child:
    """The parent's end; made by `fresh_process`."""

    def __init__(self, connection: Connection, process: ForkServerProcess) -> None:
        self._connection, self._process = connection, process

    def ask(self, *question: object) -> object:
        """Send a question and wait for its answer."""
        self._connection.send(question)
        return self.receive()

    def receive(self) -> object:
        """Wait for what the process sends; if it failed or was killed, say so."""
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join()
            raise MemoryExhaustedError(
                f"the measuring process ended with exit code {self._process.exitcode} before it could "
                "answer; the system was probably out of memory. Choose smaller sizes or fewer tokens."
            ) from error
        if isinstance(answer, str):
            raise RuntimeError(f"what is measured failed in its process:\n{answer}")
        return answer


@contextmanager
def fresh_process(
    work: Callable[..., None], *arguments: object, preload: Sequence[str] = ()
) -> Iterator[Child]:
    """Start a process that runs `work(connection, *arguments)`, and end it after the block.

    Args:
        work: An importable function; it sends anything but text, and may receive questions until the end.
        arguments: For it; they are pickled.
        preload: Modules that the server loads beside torch, if it does not run yet.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", *preload])
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, work, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Child(ours, process)
    finally:
        ours.close()  # the child's next recv ends it
        process.join()


def _answer(connection: Connection, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Work in the child; whatever fails, the parent must hear of it."""
    try:
        work(connection, *arguments)
    except (EOFError, BrokenPipeError):
        return
    except BaseException:
        connection.send(traceback.format_exc())
