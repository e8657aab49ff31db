"""Standard output and error, which may be closed, full, or read by nobody."""

import contextlib
import os
import sys
from pathlib import Path
from typing import TextIO


def open_stdio() -> None:
    """Make sure that stdout and stderr exist and can encode every character."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us, as by `2>&-`
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def write_line(text: str, stream: TextIO | None) -> None:
    """Write a line if there is somewhere to write it to."""
    if stream is not None:  # None: closed by whoever started us
        with contextlib.suppress(OSError, ValueError):  # a full disk, a closed pipe, a closed file
            print(text, file=stream, flush=True)


def flush_or_drop(stream: TextIO) -> OSError | None:
    """Write what is left, and return what hindered it; what cannot be written is dropped.

    Python would try once more as it exits, and turn success into a traceback and exit code 120.
    """
    try:
        stream.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
        return error
    except ValueError:  # a closed file
        return None
    return None
