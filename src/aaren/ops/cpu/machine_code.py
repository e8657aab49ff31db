"""Functions compiled once per installation and kept on disk as plain machine code of a few kilobytes.

Numba can keep what it compiled too, but loading that means importing Numba and whatever it looks for: half a
second and 80 MB in every new process. What the kernels compile to needs nothing of it, so LLVM's loader alone
brings it back, in a few milliseconds. Where files cannot be written it is compiled anew in each process.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from aaren.files.atomic import write_bytes
from aaren.ops.cpu.team import PROTOTYPE, Function

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine, TargetMachine


FOLDER_VARIABLE = "NUMBA_CACHE_DIR"  # what people who use Numba in containers set already
_ENTRY = "aaren_job"
_CHECKSUM_BYTES = 32

_engines: "list[ExecutionEngine]" = []  # the code lives as long as these
_is_announced = False


@cache
def load(module: str, name: str, dtype: torch.dtype) -> Function:
    """Return a compiled function of a job, for items of one dtype, from disk if it is there.

    Args:
        module: Where it is written; imported only to compile.
        name: A function there that takes Numba's type of an item and returns the Python function to compile.
        dtype: float32 or float64.
    """
    number = str(dtype).removeprefix("torch.")
    file_name = f"aaren-{name}-{number}-{_key(module)}.bin"
    code = next((found for folder in _folders() if (found := _read(folder / file_name))), None)
    if code is None:
        code = _compile(module, name, number)
        for folder in _folders():
            if _write(folder / file_name, code):
                break
    return _link(code)


def _compile(module: str, name: str, number: str) -> bytes:
    """Have Numba translate, then keep the function alone: nothing of Python is called from it."""
    global _is_announced
    if not _is_announced:
        print("aaren: compiling the CPU kernel, once per installation ...", file=sys.stderr)
        _is_announced = True
    import llvmlite.binding as llvm
    from numba import cfunc, types

    from aaren.ops.cpu.shares import SIGNATURE

    function = getattr(importlib.import_module(module), name)(getattr(types, number))
    translated = cfunc(SIGNATURE)(function)
    inner = translated.native_name.removeprefix("cfunc.")
    entry = f"""
        define void @{_ENTRY}(ptr %job) {{
            %result = alloca ptr
            %error = alloca ptr
            %status = call i32 @"{inner}"(ptr %result, ptr %error, ptr %job)
            ret void
        }}"""
    code = llvm.parse_assembly(translated.inspect_llvm() + entry)
    for part in code.functions:
        if not part.is_declaration and part.name != _ENTRY:
            part.linkage = "internal"  # so that what the entry does not need is thrown away
    target = _target()
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(code, passes)
    return cast("bytes", target.emit_object(code))


def _link(code: bytes) -> Function:
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return cast("Function", PROTOTYPE(engine.get_function_address(_ENTRY)))


def _target() -> "TargetMachine":
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)


@cache
def _key(module: str) -> str:
    """Name everything that the machine code depends on: sources, compilers, processor."""
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for source in (module, "aaren.ops.cpu.shares", __name__):
        spec = importlib.util.find_spec(source)
        path = Path(str(spec and spec.origin))
        digest.update(path.read_bytes())
        for kernel in sorted(path.parent.glob("*_kernel.py")):  # which may use each other
            digest.update(kernel.read_bytes())
    facts = version("numba"), version("llvmlite"), llvm.get_host_cpu_name(), llvm.get_process_triple()
    digest.update(repr((*facts, llvm.get_host_cpu_features().flatten())).encode())
    return digest.hexdigest()[:16]


def _folders() -> Iterator[Path]:
    """List where compiled code may be: where the user says, beside the source, in the user's cache."""
    if os.environ.get(FOLDER_VARIABLE):
        yield Path(os.environ[FOLDER_VARIABLE])
        return
    yield Path(__file__).parent / "__pycache__"
    try:
        cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return
    yield cache_home / "aaren"


def _read(path: Path) -> bytes | None:
    """Return what `_write` wrote, or None: damaged machine code would end the process."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, code = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
    return code if code and hashlib.sha256(code).digest() == checksum else None


def _write(path: Path, code: bytes) -> bool:
    try:
        write_bytes(path, hashlib.sha256(code).digest() + code)
    except OSError:
        return False
    return True
