"""Finding the compiled kernels and choosing among their instruction sets."""

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import hatch_build
import pytest
import torch

from aaren.errors import ConfigError, MissingDependencyError
from aaren.ops.cpu import library

pytestmark = pytest.mark.skipif(not library.is_available(), reason="this checkout has no compiled kernel")
HERE = library.FOLDER


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AAREN_CPU_ISA", raising=False)


def load(folder: Path = HERE) -> ModuleType:
    """Load the module anew, as a new process does."""
    spec = importlib.util.spec_from_file_location("fresh_library", folder / "library.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder like that of the kernels in a checkout."""
    for path in [*HERE.glob("*.[ch]"), HERE / "library.py", HERE / library.NAME]:
        shutil.copy(path, tmp_path)
    return tmp_path


def test_the_best_instruction_set_is_used(copy):
    fresh = load(copy)
    sets = list(hatch_build.INSTRUCTION_SETS.get(hatch_build.this_platform().machine, ["plain"]))
    words = (
        rf"C for (\w+) \(the best of {', '.join(sets)} for this processor\), compiled by (gcc|clang|zig) .*"
    )
    assert re.fullmatch(words, fresh.describe()).group(1) in sets
    assert fresh.is_available()
    assert fresh.kernel("scan_forward", torch.float32) != fresh.kernel("scan_forward", torch.float64)


def test_another_instruction_set_can_be_forced(monkeypatch):
    lowest = next(iter(hatch_build.INSTRUCTION_SETS.get(hatch_build.this_platform().machine, ["plain"])))
    monkeypatch.setenv("AAREN_CPU_ISA", lowest)
    assert f"C for {lowest} (AAREN_CPU_ISA={lowest})" in load().describe()


def test_an_unknown_instruction_set_is_refused(monkeypatch):
    monkeypatch.setenv("AAREN_CPU_ISA", "v9")
    fresh = load()
    with pytest.raises(ConfigError, match=r"AAREN_CPU_ISA must be one of .*none on this processor; got 'v9'"):
        fresh.is_available()
    assert fresh.describe().startswith("none: AAREN_CPU_ISA must be")


def test_the_kernel_can_be_left_out(monkeypatch):
    monkeypatch.setenv("AAREN_CPU_ISA", "none")
    fresh = load()
    assert not fresh.is_available()
    assert fresh.describe() == "none: AAREN_CPU_ISA=none"


@pytest.mark.parametrize("is_checkout", [True, False])
def test_where_there_is_no_kernel_it_says_how_to_get_it(is_checkout, copy):
    (copy / library.NAME).unlink()
    for path in copy.glob("*.[ch]"):
        if not is_checkout:
            path.unlink()
    fresh = load(copy)
    assert not fresh.is_available()
    cure = (
        "`python hatch_build.py`" if is_checkout else "install gcc or clang and run `pip install --force-re"
    )
    assert cure in fresh.describe()
    with pytest.raises(MissingDependencyError, match=r"made without it; .* Or use backend='chunked'"):
        fresh.kernel("scan_forward", torch.float32)


def test_a_damaged_library_is_no_library(copy):
    (copy / library.NAME).write_bytes(b"\x7fELF, and no more")
    fresh = load(copy)
    assert not fresh.is_available()
    assert "cannot be loaded" in fresh.describe()


@pytest.mark.parametrize("change", ["edit", "add", "remove"])
def test_a_kernel_of_other_sources_is_refused(change, copy):
    if change == "edit":
        (copy / "scan.c").write_text((copy / "scan.c").read_text() + "/* changed */\n")
    elif change == "add":
        (copy / "more.h").write_text("")
    else:
        (copy / "dropout.c").unlink()
    fresh = load(copy)
    with pytest.raises(
        ConfigError, match="compiled from other C sources than those beside it: run `make setup`"
    ):
        fresh.kernel("scan_forward", torch.float32)
    with pytest.raises(ConfigError, match="other C sources"):
        fresh.is_available()
    assert "make setup" in fresh.describe()


def test_the_end_of_lines_is_no_change(copy):
    for path in copy.glob("*.[ch]"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load(copy).is_available()


def test_an_installation_without_sources_has_nothing_to_compare(copy):
    for path in copy.glob("*.[ch]"):
        path.unlink()
    assert load(copy).is_available()
