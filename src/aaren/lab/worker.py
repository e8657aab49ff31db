"""A worker process: jobs come in on stdin, messages go out on stdout, one JSON line each.

It lives as long as its stdin is open: when whoever started it is gone, however that came, it saves a
checkpoint of its run and ends. Run as `python -m aaren.lab.worker`.
"""

import contextlib
import faulthandler
import os
import queue
import sys
import threading
from typing import TextIO

from aaren.lab.job import Job, Message, carry_out

PAUSE = "pause"
GRACE_SECONDS = 5.0  # for a last checkpoint when the grid itself is gone


def main() -> None:
    """Wait for jobs and carry them out, one after the other."""
    faulthandler.enable()
    # Messages keep the real stdout; whatever a library prints goes to stderr.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    is_pausing = threading.Event()
    threading.Thread(target=_listen, args=(sys.stdin, jobs, is_pausing), daemon=True).start()

    def tell(message: Message) -> None:
        # Nobody listens any more: the run is being paused, and must not fail for want of a listener.
        with contextlib.suppress(OSError):
            channel.write(message.to_json() + "\n")
            channel.flush()

    tell(Message(event="ready"))
    while (job := jobs.get()) is not None:
        tell(carry_out(job, tell, is_pausing.is_set))
    with contextlib.suppress(OSError):
        channel.close()


def _listen(source: TextIO, jobs: "queue.SimpleQueue[Job | None]", is_pausing: threading.Event) -> None:
    for line in source:
        if line.strip() == PAUSE:
            is_pausing.set()
        else:
            jobs.put(Job.from_json(line))
    is_pausing.set()
    jobs.put(None)
    last = threading.Timer(GRACE_SECONDS, os._exit, args=(1,))
    last.daemon = True
    last.start()


if __name__ == "__main__":
    main()
    # Every run is on the disk; taking torch down module by module would keep the grid waiting for a second.
    os._exit(0)
