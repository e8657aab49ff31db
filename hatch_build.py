"""Compile the CPU kernels: hatchling's build hook, and `python hatch_build.py` for a checkout.

gcc or clang if there is one, else the compiler that PyPI's `ziglang` brings, asked for only then. All types
of number and instruction sets of a platform go into one library that knows nothing of Python, so that a wheel
serves every version of Python and torch. Variables:

    AAREN_KERNEL        auto (default), cc (gcc or clang, or fail), zig (ziglang), none (no kernel)
    CC                  the compiler to try instead of gcc and clang
    AAREN_WHEEL_TAG     one of PLATFORMS: cross-compile for it, with ziglang

Must not import aaren or torch: neither is there when this runs.
"""

import ctypes
import hashlib
import importlib.util
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
SOURCES = ROOT / "src/aaren/ops/cpu"
KERNELS = ("scan.c", "dropout.c")  # compiled for every type and instruction set
RUNTIME = ROOT / "src/aaren/export"  # runs exported programs; compiled for every instruction set
MODES = ("auto", "cc", "zig", "none")
# The extra does not exist. It is what pip prints if ziglang is unavailable, and says what else can be done.
ZIG_REQUIREMENT = "ziglang[or-set-AAREN_KERNEL-to-none]>=0.14"
WITHOUT = "To install without the kernel (slower on CPUs, otherwise the same), set AAREN_KERNEL=none."

# Sums are written in the order that they are to have, and fused with products where it is written.
FLAGS = (
    "-std=c11",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
)
# By machine: the instruction sets, each containing those before it, and the processor that stands for each.
INSTRUCTION_SETS = {
    "x86_64": {"v2": "x86-64-v2", "v3": "x86-64-v3", "v4": "x86-64-v4"},
    "aarch64": {"neon": "armv8-a"},
}
BASELINE = {"x86_64": "x86-64", "aarch64": "armv8-a"}
MACOS = "11.0"  # the oldest that the library runs on

PROBE = """
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef float reals __attribute__((vector_size(32)));
typedef double doubles __attribute__((vector_size(64)));
void probe(const reals *from, doubles *to) { *to = __builtin_convertvector(*from, doubles) * log(2.0); }
"""


class Platform(NamedTuple):
    """Where a library is to run."""

    tag: str  # of wheels
    machine: str
    suffix: str  # of libraries
    zig_target: str = ""  # empty: this machine


PLATFORMS = {
    target.tag: target
    for target in (
        Platform("manylinux_2_17_x86_64", "x86_64", ".so", "x86_64-linux-gnu.2.17"),
        Platform("manylinux_2_17_aarch64", "aarch64", ".so", "aarch64-linux-gnu.2.17"),
        Platform("macosx_11_0_x86_64", "x86_64", ".dylib", f"x86_64-macos.{MACOS}"),
        Platform("macosx_11_0_arm64", "aarch64", ".dylib", f"aarch64-macos.{MACOS}"),
        Platform("win_amd64", "x86_64", ".dll", "x86_64-windows-gnu"),
    )
}


class KernelError(Exception):
    """The kernel cannot be compiled; the message says why and what to do."""


def this_platform() -> Platform:
    """Describe the machine that this runs on."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    if sys.platform == "darwin":
        return Platform(f"macosx_{MACOS.replace('.', '_')}_{platform.machine()}", machine, ".dylib")
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return Platform(tag, machine, ".dll" if sys.platform == "win32" else ".so")


def wanted_mode() -> str:
    """Return what AAREN_KERNEL says."""
    mode = os.environ.get("AAREN_KERNEL") or "auto"
    if mode not in MODES:
        raise KernelError(f"AAREN_KERNEL must be one of {', '.join(MODES)}; got {mode!r}.")
    return mode


def wanted_platform() -> Platform:
    """Return what AAREN_WHEEL_TAG says, or this machine."""
    tag = os.environ.get("AAREN_WHEEL_TAG")
    if not tag:
        return this_platform()
    if tag not in PLATFORMS:
        raise KernelError(f"AAREN_WHEEL_TAG must be one of {', '.join(PLATFORMS)}; got {tag!r}.")
    return PLATFORMS[tag]


def find_compiler() -> tuple[list[str], str]:
    """Return the command of a C compiler of this machine that can compile the kernels, or [] and why not."""
    # On Windows gcc does not align its stack for wide vectors, and MSVC does not have them.
    names = ("clang",) if sys.platform == "win32" else ("gcc", "clang", "cc")
    own = os.environ.get("CC")
    candidates = [shlex.split(own)] if own else [[name] for name in names]
    faults = []
    for command in candidates:
        if not shutil.which(command[0]):
            faults.append(f"no {command[0]} on PATH")
        elif fault := try_compiler(command):
            faults.append(f"{shlex.join(command)}: {fault}")
        else:
            return command, ""
    return [], "; ".join(faults)


def try_compiler(command: Sequence[str]) -> str:
    """Compile a few lines that need what the kernels need; return what went wrong."""
    here = this_platform()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(PROBE)
        for cpu in INSTRUCTION_SETS.get(here.machine, {"plain": ""}).values():
            arguments = [*FLAGS, *cpu_flag(command, cpu), *shared_flags(here)]
            try:
                compile_with(command, [*arguments, str(source), "-o", str(Path(folder, "probe")), "-lm"])
            except KernelError as error:
                return str(error).strip().splitlines()[-1]
    return ""


def find_zig() -> list[str]:
    """Return the command of the C compiler in PyPI's ziglang, or [] where it is not installed."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return []
    return [str(Path(spec.origin).with_name("zig.exe" if sys.platform == "win32" else "zig")), "cc"]


def is_zig(command: Sequence[str]) -> bool:
    """Tell whether a command is ziglang's."""
    return Path(command[0]).stem == "zig"


def cpu_flag(command: Sequence[str], cpu: str) -> list[str]:
    """Return the flag that compiles for a processor; without one, zig compiles for this machine's."""
    if is_zig(command):
        return [f"-mcpu={cpu.replace('-', '_') if cpu.startswith('x86') else 'baseline'}"]
    return [f"-march={cpu}"] if cpu else []


def requirements() -> list[str]:
    """Return what must be installed before the kernel can be compiled."""
    mode = wanted_mode()
    is_needed = mode == "zig" or (
        mode == "auto" and (bool(wanted_platform().zig_target) or not find_compiler()[0])
    )
    return [ZIG_REQUIREMENT] if is_needed else []


def choose_compiler(mode: str, target: Platform) -> list[str]:
    """Return the command of the compiler to use."""
    fault = "a kernel for another platform is compiled by ziglang" if target.zig_target else ""
    if mode != "zig" and not target.zig_target:
        command, fault = find_compiler()
        if command:
            return command
    if mode == "cc":
        raise KernelError(f"AAREN_KERNEL=cc, but {fault}. Install gcc (10 or later) or clang. {WITHOUT}")
    command = find_zig()
    if not command:
        because = f" ({fault})" if fault else ""
        raise KernelError(
            f"no compiler for the CPU kernel{because}, and no ziglang: install gcc (10 or later), clang or "
            f"`pip install ziglang`. {WITHOUT}"
        )
    return command


def source_hash(folder: Path = SOURCES) -> str:
    """Return the hash of C sources, which the library carries, as `aaren.ops.cpu.library` computes it."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".c", ".h")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()[:16]


def compile_with(command: Sequence[str], arguments: Sequence[str]) -> None:
    """Run a compiler; its complaints become the error's text."""
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise KernelError(f"{shlex.join([*command, *arguments])} failed:\n{done.stderr.strip()}")


def shared_flags(target: Platform) -> list[str]:
    """Return the flags that every file of a shared library is compiled and linked with."""
    flags = ["-shared"] if target.suffix == ".dll" else ["-shared", "-fPIC"]
    if target.zig_target:
        return [*flags, "-target", target.zig_target]
    return [*flags, f"-mmacosx-version-min={MACOS}"] if sys.platform == "darwin" else flags


def compile_library(
    command: Sequence[str], target: Platform, library: Path, extra: Sequence[str] = ()
) -> None:
    """Compile all kernels for all instruction sets of a platform into one library."""
    sets = INSTRUCTION_SETS.get(target.machine, {"plain": ""})
    own = [*FLAGS, *extra, *shared_flags(target)]
    about = [f'-DSOURCE_HASH="{source_hash()}"', f'-DINSTRUCTION_SETS="{" ".join(sets)}"']
    about += ["-DBY_ZIG"] * is_zig(command)
    about.append(f'-DRUNTIME_HASH="{source_hash(RUNTIME)}"')
    with tempfile.TemporaryDirectory() as folder:
        baseline = cpu_flag(command, BASELINE.get(target.machine, ""))
        jobs = [(SOURCES / "library.c", [*baseline, *about], Path(folder, "library.o"))]
        api = "__declspec(dllexport)" if target.suffix == ".dll" else '__attribute__((visibility("default")))'
        for name, cpu in sets.items():
            for bits in (32, 64):
                defines = [*cpu_flag(command, cpu), f"-DREAL_BITS={bits}", f"-DSUFFIX=_f{bits}_{name}"]
                for kernel in KERNELS:
                    into = Path(folder, f"{Path(kernel).stem}_{bits}_{name}.o")
                    jobs.append((SOURCES / kernel, defines, into))
            defines = [*cpu_flag(command, cpu), f"-DAAREN_API={api}"]
            defines += [f"-D{function}={function}_{name}" for function in ("aaren_run", "aaren_run_many")]
            defines.append("-ffp-contract=fast")  # alone and beside others: the same loops
            jobs.append((RUNTIME / "many.c", defines, Path(folder, f"runtime_{name}.o")))

        def make(job: tuple[Path, list[str], Path]) -> None:
            source, flags, into = job
            flags = [flag for flag in (*own, *flags) if flag != "-shared"]
            compile_with(command, [*flags, "-c", str(source), "-o", str(into)])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(make, jobs))
        objects = [str(into) for _, _, into in jobs]
        strip = [] if target.suffix == ".dylib" else ["-s"]
        compile_with(command, [*shared_flags(target), *strip, *objects, "-o", str(library), "-lm"])


def build(library_folder: Path) -> Path | None:
    """Compile the library into a folder and try it; None where no kernel is wanted."""
    mode, target = wanted_mode(), wanted_platform()
    if mode == "none":
        return None
    library = library_folder / f"_kernels{target.suffix}"
    try:
        compile_library(choose_compiler(mode, target), target, library)
    except KernelError as error:
        raise KernelError(f"{error}\nThe CPU kernel could not be compiled. {WITHOUT}") from None
    if not target.zig_target:
        try_library(library)
    return library


def try_library(library: Path) -> None:
    """Load the library and run one scan with every instruction set, in a process of its own: it may crash."""
    command = [sys.executable, str(Path(__file__).resolve()), "try", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise KernelError(f"The CPU kernel was compiled but does not work: {reason}\n{WITHOUT}")


def scan_once(library: Path) -> None:
    """Scan seven items of two heads, one of them masked, and compare with the definition."""
    loaded = ctypes.CDLL(str(library))
    loaded.kernel_instruction_sets.restype = ctypes.c_char_p
    loaded.kernel_count_supported.restype = ctypes.c_int64
    items, heads, width = 7, 2, 11
    scores = [math.sin(3.0 * i) * 5.0 for i in range(items * heads)]
    values = [math.cos(2.0 * i) for i in range(items * heads * width)]
    hidden = 2

    def doubles(count: int, number: float = 0.0) -> ctypes.Array[ctypes.c_double]:
        return (ctypes.c_double * count)(*[number] * count)

    for name in loaded.kernel_instruction_sets().decode().split()[: loaded.kernel_count_supported()]:
        for bits, real, tolerance in ((32, ctypes.c_float, 1e-6), (64, ctypes.c_double, 1e-14)):
            scratch, outputs = doubles(64), (real * len(values))()
            inputs = [(real * len(scores))(*scores), (real * len(values))(*values)]
            mask = (ctypes.c_uint8 * items)(*(k != hidden for k in range(items)))
            empty, final = [[doubles(heads), doubles(heads), doubles(heads * width)] for _ in range(2)]
            results = [outputs, doubles(len(scores)), doubles(len(scores)), None]
            # The fields of forward_job in scan.c: one piece, no decay, empty initial states.
            rows = [0, 1, 0, items, heads, width, heads, scratch, len(scratch), 0]
            fields: list[Any] = [*rows, *inputs, mask, None, *empty, *final, *results]
            numbers = [
                field if isinstance(field, int) else 0 if field is None else ctypes.addressof(field)
                for field in fields
            ]
            getattr(loaded, f"scan_forward_f{bits}_{name}")((ctypes.c_int64 * len(numbers))(*numbers))
            for place, got in enumerate(outputs):
                k, head, j = place // (heads * width), place // width % heads, place % width
                seen = [i for i in range(k + 1) if i != hidden]
                weights = [math.exp(scores[i * heads + head]) for i in seen]
                sums = sum(
                    w * values[(i * heads + head) * width + j] for w, i in zip(weights, seen, strict=True)
                )
                want = sums / sum(weights)
                if not abs(got - want) <= tolerance:
                    raise KernelError(f"scan_forward_f{bits}_{name} gave {got} instead of {want} at item {k}")


class CustomBuildHook(BuildHookInterface[Any]):
    """Put the library into wheels, or beside its source for editable installs."""

    def dependencies(self) -> list[str]:
        """Ask for ziglang where no compiler is found."""
        try:
            return requirements()
        except KernelError as error:
            self.app.abort(f"aaren: {error}")
            return []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, try, and add the library to what is packed."""
        try:
            if version == "editable":
                build_in_place()
                return
            self.folder = tempfile.TemporaryDirectory()
            library = build(Path(self.folder.name))
            if library is not None:
                build_data["force_include"][str(library)] = f"aaren/ops/cpu/{library.name}"
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{wanted_platform().tag}"
        except KernelError as error:
            self.app.abort(f"aaren: {error}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what is in the wheel now."""
        if version != "editable":
            self.folder.cleanup()


def build_in_place() -> Path | None:
    """Compile the library beside its source; with AAREN_KERNEL=none, remove the one that lies there."""
    placed = None
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        if library is not None:
            placed = SOURCES / library.name
            beside = SOURCES / f"_kernels.{os.getpid()}"
            shutil.copyfile(library, beside)
            beside.replace(placed)  # at once: a process that has the old one loaded keeps it
    for other in SOURCES.glob("_kernels.*"):
        if other != placed:
            other.unlink()
    return placed


def get_build_hook() -> type[CustomBuildHook]:
    """Tell hatchling which of the classes above is the hook."""
    return CustomBuildHook


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["try"]:
            scan_once(Path(sys.argv[2]))
        else:
            print(build_in_place() or "no kernel: AAREN_KERNEL=none")
    except KernelError as error:
        sys.exit(f"aaren: {error}")
