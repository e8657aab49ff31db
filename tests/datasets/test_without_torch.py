"""What lists and checks never waits for torch: one process for each way in."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TS = "@problemName X\n@timeStamps false\n@classLabel true a b\n@data\n"
IMPORTS = {
    "the settings": "from aaren.datasets.settings import find_setting, setting_names\n"
    "[find_setting(name).suffixes for name in setting_names()]",
    "from a package": "from aaren.events import SETTING",
    "the command line": "import aaren.cli.main",
    "episodes side by side": "import aaren.rl.environments",
}


def write_own(folder: Path, setting: str) -> Path:
    """Write a small file of a setting."""
    if setting == "forecasting":
        path = folder / "own.csv"
        path.write_text("date,a\n" + "".join(f"2024-01-01 {hour:02}:00,{hour}\n" for hour in range(24)))
    elif setting == "classification":
        path = folder / "own_TRAIN.ts"
        path.write_text(TS + "1,2:a\n3,4:a\n5,6:a\n1,3:b\n")
    elif setting == "events":
        path = folder / "own.jsonl"
        path.write_text('{"time_since_start": [0.5, 1.0], "type_event": [0, 1], "dim_process": 2}\n')
    else:
        path = folder / "own.npz"
        ends = np.array([0, 0, 1])
        arrays = {"observations": np.zeros((3, 2)), "actions": np.zeros((3, 1)), "rewards": np.ones(3)}
        np.savez(path, **arrays, terminals=ends, timeouts=0 * ends)
    return path


def run(code: str, *arguments: str) -> None:
    code += "\nimport sys; assert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", IMPORTS.values(), ids=IMPORTS.keys())
def test_importing(code: str) -> None:
    run(code)


@pytest.mark.parametrize("setting", ["forecasting", "classification", "events", "rl"])
def test_checking_a_file(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = (
        "import sys; from pathlib import Path; from aaren.datasets.verify import check_file\n"
        "found = check_file(Path(sys.argv[1]), setting=sys.argv[2])\n"
        "assert found.status == 'verified', found"
    )
    run(code, str(write_own(tmp_path, setting)), setting)
