"""A setting of another package: found by its entry point, listed with its datasets, trained by its name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CODE = """
from dataclasses import replace

from aaren.datasets.dataset import Dataset
from aaren.engine.presets import dataset_name
from support.toy_task import ToySetting


class LineSetting(ToySetting):
    name = "lines"
    title = "Noisy lines"
    datasets = (
        Dataset(
            name="Steep",
            setting="lines",
            files=("steep.npz",),
            facts={"points": 100},
            licence="generated here",
            source="in memory",
            is_generated=True,
        ),
    )

    @staticmethod
    def preset(dataset: str, *, model: str, profile: str, data_file: str):
        name = dataset_name(dataset, "lines")
        return ToySetting.preset(name, model=model, profile=profile, data_file=data_file)


SETTING = LineSetting()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Install a package with a setting: its code, and the metadata that names its entry point."""
    (tmp_path / "noisy_lines").mkdir()
    (tmp_path / "noisy_lines" / "__init__.py").write_text(CODE)
    described = tmp_path / "noisy_lines-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy-lines\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[aaren.settings]\nlines = noisy_lines:SETTING\n")
    return tmp_path


def aaren(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "aaren", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(package / "cache")},
        cwd=package,
    )


def test_its_datasets_are_listed_with_ours(package: Path) -> None:
    done = aaren(package, "data", "list", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["Steep"]["setting"] == "lines"
    assert len(rows) == 39
    done = aaren(package, "data", "list", "lines", "--json")
    assert [row["name"] for row in json.loads(done.stdout)] == ["Steep"]


def test_it_is_trained_by_its_name(package: Path) -> None:
    done = aaren(package, "train", "lines", "steep", "--profile", "smoke", "--out", "run")
    assert done.returncode == 0, done.stderr
    record = json.loads((package / "run" / "record.json").read_text())
    assert (record["setting"], record["cell"]["dataset"]) == ("lines", "Steep")
    assert "test.mse" in done.stdout


def test_a_dataset_of_another_setting_is_refused(package: Path) -> None:
    done = aaren(package, "train", "lines", "ETTh1")
    assert done.returncode == 2
    assert "ETTh1 is a dataset of forecasting" in " ".join(done.stderr.split())
