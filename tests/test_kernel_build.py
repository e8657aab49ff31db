"""The build hook: which compiler is taken, what is asked of PyPI, and what a failure says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import hatch_build
import pytest

ROOT = Path(__file__).parents[1]
HERE = hatch_build.this_platform()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AAREN_KERNEL", "AAREN_WHEEL_TAG", "CC"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH whose only folder is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def no_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ziglang", None)  # as if it were not installed


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the C sources to compile, for one instruction set."""
    folder = tmp_path / "cpu"
    shutil.copytree(hatch_build.SOURCES, folder, ignore=shutil.ignore_patterns("_kernels.*"))
    monkeypatch.setattr(hatch_build, "SOURCES", folder)
    sets = hatch_build.INSTRUCTION_SETS.get(HERE.machine, {"plain": ""})
    name = next(iter(sets))
    monkeypatch.setitem(hatch_build.INSTRUCTION_SETS, HERE.machine, {name: sets[name]})
    return folder


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture(scope="session")
def compiler() -> None:
    if not hatch_build.find_compiler()[0]:
        pytest.skip("needs gcc or clang")


needs_compiler = pytest.mark.usefixtures("compiler")


@needs_compiler
def test_where_there_is_a_compiler_nothing_is_asked_of_pypi(monkeypatch):
    for mode in ("auto", "cc", "none", ""):
        monkeypatch.setenv("AAREN_KERNEL", mode)
        assert hatch_build.requirements() == []
    monkeypatch.setenv("AAREN_KERNEL", "zig")
    assert hatch_build.requirements() == [hatch_build.ZIG_REQUIREMENT]


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_ziglang_is_asked_for(monkeypatch):
    assert hatch_build.requirements() == [hatch_build.ZIG_REQUIREMENT]
    for mode in ("cc", "none"):
        monkeypatch.setenv("AAREN_KERNEL", mode)
        assert hatch_build.requirements() == []


def test_what_pip_prints_when_ziglang_cannot_be_had_names_the_way_out(tmp_path):
    words = [sys.executable, "-m", "pip", "install", "--no-index", "--target", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment["PIP_CONFIG_FILE"] = os.devnull  # no folder of wheels either
    done = subprocess.run(
        [*words, hatch_build.ZIG_REQUIREMENT], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1
    assert "ziglang[or-set-AAREN_KERNEL-to-none]" in done.stderr


def test_another_platform_is_compiled_for_by_ziglang(monkeypatch):
    monkeypatch.setenv("AAREN_WHEEL_TAG", "win_amd64")
    assert hatch_build.requirements() == [hatch_build.ZIG_REQUIREMENT]
    monkeypatch.setenv("AAREN_WHEEL_TAG", "win_arm")
    with pytest.raises(hatch_build.KernelError, match=r"AAREN_WHEEL_TAG must be one of .*got 'win_arm'"):
        hatch_build.requirements()


def test_an_unknown_mode_is_refused(monkeypatch):
    monkeypatch.setenv("AAREN_KERNEL", "gcc")
    with pytest.raises(
        hatch_build.KernelError, match="AAREN_KERNEL must be one of auto, cc, zig, none; got 'gcc'"
    ):
        hatch_build.requirements()


def test_compilers_that_cannot_are_none(no_compiler, monkeypatch):
    """Microsoft's, one that is too old, and one without a C library."""
    script(no_compiler, "cl", "echo 'cl : Command line error D8021' >&2; exit 2")
    script(no_compiler, "gcc", "echo 'unrecognized -march=x86-64-v4' >&2; exit 1")
    for own, reason in (("cl", "D8021"), ("", "gcc: unrecognized"), ("tcc -x", "no tcc on PATH")):
        monkeypatch.setenv("CC", own)
        command, why = hatch_build.find_compiler()
        assert command == []
        assert reason in why
        assert hatch_build.requirements() == [hatch_build.ZIG_REQUIREMENT]


@needs_compiler
def test_the_own_compiler_comes_first(monkeypatch):
    wanted = shutil.which("clang") or shutil.which("gcc")
    monkeypatch.setenv("CC", f"{wanted} -pipe")
    assert hatch_build.find_compiler() == ([wanted, "-pipe"], "")


@pytest.mark.usefixtures("no_compiler", "no_zig")
@pytest.mark.parametrize("mode", ["auto", "cc", "zig"])
def test_a_machine_without_any_compiler_is_told_of_the_ways_out(mode, monkeypatch, tmp_path):
    monkeypatch.setenv("AAREN_KERNEL", mode)
    with pytest.raises(hatch_build.KernelError, match=r"gcc \(10 or later\).*clang") as caught:
        hatch_build.build(tmp_path)
    assert "set AAREN_KERNEL=none" in str(caught.value)


def test_no_kernel_is_no_file(monkeypatch, sources):
    (sources / "_kernels.so").write_bytes(b"old")
    monkeypatch.setenv("AAREN_KERNEL", "none")
    assert hatch_build.build_in_place() is None
    assert not list(sources.glob("_kernels.*"))


@needs_compiler
def test_what_does_not_compile_names_the_way_out(sources, tmp_path):
    (sources / "kernels.h").write_text("#error on purpose\n")
    with pytest.raises(hatch_build.KernelError, match="on purpose") as caught:
        hatch_build.build(tmp_path)
    assert "set AAREN_KERNEL=none" in str(caught.value)


@needs_compiler
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("#include <math.h>", "#include <math.h>\nextern void nowhere(void);", "undefined symbol: nowhere"),
        ("1.0 / 5040", "1.0 / 50", r"scan_forward_f(32|64)_\w+ gave .* instead of"),
    ],
)
def test_a_library_that_does_not_work_is_not_accepted(old, new, words, sources):
    """One that links and cannot be loaded, and one that computes something else."""
    text = (sources / "kernels.h").read_text()
    assert old in text
    (sources / "kernels.h").write_text(text.replace(old, new))
    if "nowhere" in new:
        scan = sources / "scan.c"
        assert "sums[head] = 0.0;" in scan.read_text()
        scan.write_text(scan.read_text().replace("sums[head] = 0.0;", "sums[head] = 0.0, nowhere();"))
    with pytest.raises(hatch_build.KernelError, match=words) as caught:
        hatch_build.build_in_place()
    assert "set AAREN_KERNEL=none" in str(caught.value)
    assert not list(sources.glob("_kernels.*"))


def test_changed_sources_make_the_environment_anew():
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    folders = (hatch_build.SOURCES, hatch_build.RUNTIME)
    for source in (*(path for folder in folders for path in folder.glob("*.[ch]")), ROOT / "hatch_build.py"):
        path = source.relative_to(ROOT)
        shown = subprocess.run([make, "-n", "-W", path, "setup"], cwd=ROOT, capture_output=True, text=True)
        assert "pip install" in shown.stdout, path
