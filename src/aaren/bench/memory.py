"""Peak extra memory of one call, measured from outside Python, in a fresh process.

Allocator statistics do not see the CPU's memory, and a process that has worked before reuses what it freed.
So the call runs in a new child of a fork server that has torch loaded: inputs are built, a small warm-up
loads libraries and compiled code, freed memory goes back to the system, and then the operating system's own
high-water mark (VmHWM, reset through /proc/self/clear_refs) is read after the call. Where the mark cannot be
reset nothing is measured and tables show a gap. Accurate to about one megabyte.

The C library's allocator is told to hand every large block back when it is freed. Left to itself it learns to
keep blocks of up to 32 MB, depending on all that went before, and the same call would peak at one or at
fifteen gigabytes.
"""

import ctypes
import gc
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TypeAlias, cast

import torch

from aaren.errors import AarenError

Prepare: TypeAlias = Callable[..., Callable[[], object]]

_STATUS = Path("/proc/self/status")
_STATM = Path("/proc/self/statm")  # sizes in pages: total, resident, ... ; see proc(5)
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # see proc(5)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # see mallopt(3)
_LARGE_BLOCK_BYTES = 128 * 1024  # what glibc starts with


class MemoryExhaustedError(AarenError, MemoryError):
    """The system ended the measuring process, most likely because memory ran out."""


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
    """Work in the child; every failure is reported to the parent."""
    try:
        work(connection, *arguments)
    except (EOFError, BrokenPipeError):
        return
    except BaseException:
        connection.send(traceback.format_exc())


def can_measure() -> bool:
    """Tell whether this system lets a process read its own sizes."""
    return _STATUS.exists()


def resident_bytes() -> int | None:
    """Return the resident size of this process; None where the system does not say. Cheap: between tokens.

    >>> size = resident_bytes()
    >>> size is None or size > 1_000_000
    True
    """
    if not _STATM.exists():
        return None
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_extra_bytes(
    prepare: Prepare, *arguments: object, warm_up: tuple[object, ...] | None = None
) -> int | None:
    """Measure how far memory rises above its level before the call, at worst, during one call.

    Args:
        prepare: an importable function that builds inputs and returns the call to measure; the inputs do not
            count, what the call returns does.
        arguments: for prepare; they are pickled.
        warm_up: arguments for a first, small call that does not count.

    Returns:
        Bytes, or None where it cannot be measured.
    """
    if not can_measure():
        return None
    question = (prepare, arguments, warm_up, torch.get_num_threads())
    with fresh_process(_measure, *question, preload=["aaren.ops.cpu.fused"]) as child:
        answer = child.receive()
    return cast(int | None, answer)


def _measure(
    connection: Connection,
    prepare: Prepare,
    arguments: tuple[object, ...],
    warm_up: tuple[object, ...] | None,
    num_threads: int,
) -> None:
    """Work in the child: send the peak."""
    _hand_back_large_blocks()
    torch.set_num_threads(num_threads)
    if warm_up is not None:
        prepare(*warm_up)()
    call = prepare(*arguments)
    return_freed_memory()
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        connection.send(None)
        return
    before = _status_bytes("VmRSS")
    kept = call()
    peak = _status_bytes("VmHWM")
    del kept
    connection.send(max(0, peak - before))


def _hand_back_large_blocks() -> None:
    """Fix glibc's thresholds, which otherwise move with every block that is freed."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if tune is not None:
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            tune(option, _LARGE_BLOCK_BYTES)


def return_freed_memory() -> None:
    """Give freed heap back to the system, or the call would reuse it unseen."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


def _status_bytes(field: str) -> int:
    """Return one field of this process's status."""
    found = [line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:")]
    return int(found[0].split()[1]) * 1024
