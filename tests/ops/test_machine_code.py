import os
import subprocess
import sys
from pathlib import Path

import pytest

from aaren.ops.cpu import machine_code

CALL = """
import sys, torch
from aaren.ops import scan_attention
values = torch.ones(1, 3, 1, 4, requires_grad=True)
outputs, _ = scan_attention(torch.zeros(1, 3, 1), values)
outputs.sum().backward()
assert torch.equal(outputs, values)
print("numba" in sys.modules)
"""


def call(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", CALL], env=environment, capture_output=True, text=True, check=True
    )


def test_no_home_costs_only_time(monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert [folder.name for folder in machine_code._folders()] == ["__pycache__"]


@pytest.mark.slow
def test_is_compiled_once_then_loaded_without_numba(tmp_path):
    first, second = call(tmp_path), call(tmp_path)
    assert "compiling the CPU kernel, once per installation" in first.stderr
    assert first.stdout.strip() == "True"
    assert second.stderr == ""
    assert second.stdout.strip() == "False"


@pytest.mark.slow
def test_a_damaged_file_is_compiled_again(tmp_path):
    call(tmp_path)
    damaged = next(tmp_path.glob("aaren-forward_job-*.bin"))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert "compiling" in call(tmp_path).stderr
    assert "compiling" not in call(tmp_path).stderr


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path):
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    done = call(no_folder)
    assert "compiling" in done.stderr
    assert done.stdout.strip() == "True"
