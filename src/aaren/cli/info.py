"""`aaren info`: what is installed and which kernel is in use, for bug reports."""

import platform
from collections.abc import Iterator

from aaren.table import print_table
from aaren.version import __version__


def info() -> None:
    """Say which versions, kernel and data folders are in use."""
    print_table((), [list(fact) for fact in _facts()], num_left=2)


def _facts() -> Iterator[tuple[str, str]]:
    yield "aaren", __version__
    yield "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    import torch

    from aaren.files.folders import roots
    from aaren.ops.cpu import library

    yield "torch", torch.__version__
    yield "kernel", library.describe()
    yield "threads", f"{torch.get_num_threads()}"
    yield "devices", ", ".join(_devices())
    for root in roots():
        yield "data", f"{root}{'' if root.is_dir() else ' (not there yet)'}"


def _devices() -> Iterator[str]:
    import torch

    yield "cpu"
    for index in range(torch.cuda.device_count()):
        yield f"cuda:{index} ({torch.cuda.get_device_name(index)})"
    if torch.backends.mps.is_available():
        yield "mps"
