"""On what a number was computed: versions and processor. No host, user or path."""

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

import torch

from aaren.version import __version__

PACKAGES = ("torch", "numpy", "numba", "safetensors", "gymnasium", "mujoco", "aeon", "scikit-learn", "pandas")


def versions() -> dict[str, str]:
    """Return the versions of what results depend on, as far as it is installed.

    >>> sorted(versions())[:2]
    ['aaren', 'aeon']
    """
    found = {"aaren": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        version = _installed(package)
        if version is not None:
            found[package] = version
    return found


@cache  # a look-up reads files, and a worker writes many records
def _installed(package: str) -> str | None:
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, str | int | None]:
    """Describe the processor and memory."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "platform": f"{platform.system()} {platform.machine()}",
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory_bytes() -> int | None:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
