"""The C code itself: warnings of compilers, sanitizers, valgrind, and a processor that is not this one."""

import shutil
import subprocess
from pathlib import Path

import hatch_build
import pytest

from aaren.ops.cpu import library

PROGRAM = Path(__file__).with_name("check_kernels.c")
# Not psabi: how wide vectors are passed between functions; here every function that takes one is inlined.
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")
SETS = hatch_build.INSTRUCTION_SETS["x86_64"]
IS_X86 = hatch_build.this_platform().machine == "x86_64"
SANITIZERS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def needs(program: str) -> str:
    """Return where a program is, or skip by its name."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}")
    return found


def needs_cpu(cpu: str) -> None:
    loaded, _ = library._load()
    count = 0 if loaded is None else loaded.functions.kernel_count_supported()
    if cpu not in list(SETS.values())[:count]:
        pytest.skip(f"needs a processor of {cpu}")


def compiler(name: str) -> list[str]:
    if name != "zig":
        return [needs(name)]
    command = hatch_build.find_zig()
    if not command:
        pytest.skip("needs ziglang: pip install ziglang")
    return command


def compile_program(command: list[str], bits: int, into: Path, *flags: str) -> Path:
    """Compile the program that compares all kernels with plain loops."""
    defines = [f"-DREAL_BITS={bits}", "-DSUFFIX=_check", f"-I{hatch_build.SOURCES}"]
    hatch_build.compile_with(
        command, [*hatch_build.FLAGS, *WARNINGS, *flags, *defines, str(PROGRAM), "-o", str(into), "-lm"]
    )
    return into


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["gcc", "clang", "zig"])
def test_no_compiler_warns(name, tmp_path):
    command = compiler(name)
    machine = hatch_build.this_platform().machine
    cpu = list(hatch_build.INSTRUCTION_SETS.get(machine, {"plain": ""}).values())[-1]
    for source in hatch_build.KERNELS:
        defines = ["-DREAL_BITS=32", "-DSUFFIX=_check", "-c", str(hatch_build.SOURCES / source)]
        flags = [*hatch_build.FLAGS, *WARNINGS, *hatch_build.cpu_flag(command, cpu)]
        hatch_build.compile_with(command, [*flags, *defines, "-o", str(tmp_path / "kernel.o")])


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["gcc", "clang", "zig"])
def test_no_compiler_warns_about_any_variant(name, tmp_path):
    here = hatch_build.this_platform()
    library = tmp_path / f"_kernels{here.suffix}"
    hatch_build.compile_library(compiler(name), here, library, extra=WARNINGS)
    hatch_build.try_library(library)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not IS_X86, reason="instruction sets of x86-64")
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("cpu", list(SETS.values()))
def test_address_and_undefined_behaviour_sanitizers_find_nothing(cpu, bits, tmp_path):
    needs_cpu(cpu)
    program = compile_program([needs("gcc")], bits, tmp_path / "check", *SANITIZERS, f"-march={cpu}")
    assert "cases" in run(program)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not IS_X86, reason="instruction sets of x86-64")
def test_the_sanitizers_would_find_an_overrun(tmp_path, monkeypatch):
    """A check that can fail: one item too many at the end of a row."""
    sources = tmp_path / "sources"
    shutil.copytree(hatch_build.SOURCES, sources)
    text = (sources / "kernels.h").read_text()
    assert "if (i < count)" in text
    (sources / "kernels.h").write_text(text.replace("if (i < count)", "if (i <= count)"))
    monkeypatch.setattr(hatch_build, "SOURCES", sources)
    program = compile_program([needs("gcc")], 32, tmp_path / "check", *SANITIZERS, "-march=x86-64-v3")
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not IS_X86, reason="instruction sets of x86-64")
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
def test_valgrind_finds_nothing(cpu, bits, tmp_path):
    valgrind = needs("valgrind")
    program = compile_program([needs("gcc")], bits, tmp_path / "check", "-g", f"-march={cpu}")
    assert "cases" in run(valgrind, "-q", "--error-exitcode=3", "--leak-check=full", program)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not IS_X86, reason="instruction sets of x86-64")
@pytest.mark.parametrize("bits", [32, 64])
def test_all_compilers_and_processors_that_fuse_give_the_same_bits(bits, tmp_path):
    needs_cpu("x86-64-v4")
    found = {}
    for name in ("gcc", "clang", "zig"):
        if name == "zig" or shutil.which(name):
            for cpu in ("x86-64-v3", "x86-64-v4"):
                command = compiler(name)
                flags = hatch_build.cpu_flag(command, cpu)
                found[name, cpu] = run(compile_program(command, bits, tmp_path / f"{name}-{cpu}", *flags))
    assert len(set(found.values())) == 1, found


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bits", [32, 64])
def test_the_kernels_of_aarch64_are_right(bits, tmp_path):
    """And give the bits of x86-64-v3, from the same compiler and C library."""
    qemu = needs("qemu-aarch64")
    target = ("-target", "aarch64-linux-musl", "-static", "-mcpu=baseline")
    program = compile_program(compiler("zig"), bits, tmp_path / "check", *target)
    found = run(qemu, program)
    assert "cases" in found
    if IS_X86:
        target = ("-target", "x86_64-linux-musl", "-static", "-mcpu=x86_64_v3")
        assert found == run(compile_program(compiler("zig"), bits, tmp_path / "here", *target))
