"""Fixtures that every folder of tests shares."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

# As on most machines: what a process cannot write then fails as late as at its exit.
os.environ.pop("PYTHONUNBUFFERED", None)
torch.set_num_threads(1)  # xdist gives every core a worker of its own


def avoid_illegal_instructions() -> None:
    """Keep oneDNN from AMX where the processor lists it and a virtual machine does not let it run.

    There every bfloat16 product of torch ends the process. The workers of xdist inherit the variable.
    """
    cpuinfo = Path("/proc/cpuinfo")
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpuinfo.is_file() or "amx_tile" not in cpuinfo.read_text():
        return
    product = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    done = subprocess.run([sys.executable, "-c", product], capture_output=True, check=False)
    if done.returncode < 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"


avoid_illegal_instructions()


@pytest.fixture
def rng() -> torch.Generator:
    """A seeded generator: the randomness of a test is an argument, like everywhere else."""
    return torch.Generator().manual_seed(20240523)


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder of real data: the first root of $AAREN_DATA, or `shared/data` beside the checkout."""
    first = os.environ.get("AAREN_DATA", "").split(os.pathsep)[0]
    beside = Path(__file__).parents[2] / "shared" / "data"
    for folder in [Path(first).expanduser()] * bool(first) + [beside]:
        if (folder / "forecasting").is_dir():
            return folder
    pytest.skip(
        "needs real data: set AAREN_DATA to a folder with forecasting/, classification/, events/ and rl/"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of minutes the time they need on a busy machine too."""
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200))
