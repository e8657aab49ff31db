"""The compiled kernels: find the library, choose the instruction set, return addresses of functions.

`hatch_build.py` puts the library beside this file. It holds every kernel once per dtype and instruction set;
the best that the processor supports is used, or what `AAREN_CPU_ISA` says at the first call, also `none`.
"""

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch

from aaren.errors import ConfigError, MissingDependencyError

VARIABLE = "AAREN_CPU_ISA"
FOLDER = Path(__file__).parent
RUNTIME = FOLDER.parents[1] / "export"  # the other C sources in the library
NAME = {"darwin": "_kernels.dylib", "win32": "_kernels.dll"}.get(sys.platform, "_kernels.so")
REBUILD = (
    "run `make setup`, or `python hatch_build.py` in the checkout"
    if (FOLDER / "library.c").is_file()
    else "install gcc or clang and run `pip install --force-reinstall --no-deps --no-cache-dir aaren`"
)
Kernel: TypeAlias = Callable[[int], None]  # takes the address of a job, releases the GIL
_BITS = {torch.float32: 32, torch.float64: 64}


class Library(NamedTuple):
    """A library that is loaded and an instruction set of it that this processor supports."""

    functions: ctypes.CDLL
    instruction_set: str
    reason: str  # why this instruction set
    compiler: str


@cache
def kernel(name: str, dtype: torch.dtype) -> Kernel:
    """Return a kernel, such as `scan_forward`, for numbers of a type, or say why there is none."""
    library, fault = _load()
    if library is None:
        raise MissingDependencyError(f"the CPU kernel is not available: {fault}. Or use backend='chunked'.")
    found: Kernel = getattr(library.functions, f"{name}_f{_BITS[dtype]}_{library.instruction_set}")
    found.argtypes, found.restype = [ctypes.c_void_p], None  # type: ignore[attr-defined]  # ctypes' own
    return found


@cache
def runtime_function(name: str) -> Callable[..., int] | None:
    """Return `aaren_run` or `aaren_run_many` of `aaren.export`, for the instruction set in use.

    None without a library.
    """
    library, _ = _load()
    if library is None:
        return None
    library.functions.runtime_source_hash.restype = ctypes.c_char_p
    _require_current(library.functions.runtime_source_hash().decode(), FOLDER / NAME, RUNTIME)
    function: Callable[..., int] = getattr(library.functions, f"{name}_{library.instruction_set}")
    return function


def is_available() -> bool:
    """Tell whether there are kernels that this machine can run."""
    return _load()[0] is not None


def describe() -> str:
    """Say which kernel is in use, for which instructions, compiled by what and why; or how to get one."""
    try:
        library, fault = _load()
    except ConfigError as error:
        return f"none: {error}"
    if library is None:
        return f"none: {fault}"
    return f"C for {library.instruction_set} ({library.reason}), compiled by {library.compiler}"


@cache
def _load() -> tuple[Library | None, str]:
    """Load the library and choose an instruction set, or say why there is none."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "none":
        return None, f"{VARIABLE}=none"
    path = FOLDER / NAME
    if not path.is_file():
        return None, f"this installation was made without it; to get it, {REBUILD}"
    try:
        functions = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"{path} cannot be loaded ({error}); compile it here: {REBUILD}"
    for name in ("kernel_source_hash", "kernel_compiler", "kernel_instruction_sets"):
        getattr(functions, name).restype = ctypes.c_char_p
    functions.kernel_count_supported.restype = ctypes.c_int64
    _require_current(functions.kernel_source_hash().decode(), path, FOLDER)
    compiled = functions.kernel_instruction_sets().decode().split()
    supported = compiled[: functions.kernel_count_supported()]
    if wanted and wanted not in supported:
        known = ", ".join([*supported, "none"])
        raise ConfigError(f"{VARIABLE} must be one of {known} on this processor; got {wanted!r}.")
    if not supported:
        return None, f"this processor supports none of {', '.join(compiled)}"
    reason = f"{VARIABLE}={wanted}" if wanted else f"the best of {', '.join(compiled)} for this processor"
    return Library(functions, wanted or supported[-1], reason, functions.kernel_compiler().decode()), ""


def _require_current(embedded: str, path: Path, folder: Path) -> None:
    """In a checkout, where the sources lie beside the library, refuse one that was made from others."""
    digest = hashlib.sha256()
    sources = sorted(source for source in folder.iterdir() if source.suffix in (".c", ".h"))
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    if sources and digest.hexdigest()[:16] != embedded:
        raise ConfigError(f"{path.name} was compiled from other C sources than those beside it: {REBUILD}.")
