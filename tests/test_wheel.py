"""The built wheel, in an environment that holds its declared core dependencies and nothing else."""

import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.markdown import python_blocks

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def core_distributions() -> list[Distribution]:
    """Return what `pip install aaren` would bring, without any extra, all the way down."""
    found: dict[str, Distribution] = {}
    waiting = list(distribution("aaren").requires or [])
    while waiting:
        requirement = Requirement(waiting.pop())
        name = requirement.name.lower().replace("_", "-")
        if name in found or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # a part of torch that this platform's build does not have
        waiting += found[name].requires or []
    return list(found.values())


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel and links to its core dependencies; made without a network."""
    home = tmp_path_factory.mktemp("empty")
    venv.create(home, with_pip=False, symlinks=True)
    executable = home / "bin" / "python"
    site = Path(
        subprocess.run(
            [executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
    for dist in core_distributions():
        for top in {Path(str(file)).parts[0] for file in dist.files or []} - {"..", "__pycache__"}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(dist.locate_file(top))))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--target",
            str(site),
            str(wheel),
        ],
        check=True,
    )
    return executable


def run(python: Path, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_first_lines_of_readme_run(python, tmp_path):
    done = run(python, python_blocks(ROOT / "README.md")[0], tmp_path)
    assert done.returncode == 0, done.stderr


def test_help_runs(python, tmp_path):
    done = run(
        python,
        "import sys; sys.argv = ['aaren', '--help']; from aaren.cli.main import main; main()",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Attention as an RNN" in done.stdout


def test_the_templates_of_the_report_are_in_it(wheel):
    templates = {path.name for path in (ROOT / "src/aaren/report/templates").iterdir()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {Path(name).name for name in archive.namelist() if "report/templates/" in name}
    assert packed == templates == {"page.html", "parts.html", "page.css", "page.js"}


# One use of each extra; without it, the error holds the line that installs it.
USES = {
    "triton": (
        "import torch; from aaren.ops import scan_attention; "
        "scan_attention(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1, 1), backend='triton')"
    ),
    "plot": "from aaren.bench.figure import require_matplotlib; require_matplotlib()",
    "data": (
        "from pathlib import Path; Path('own.csv').write_text('date,x\\n2020-01-01,1\\n'); "
        "from aaren.forecasting.batches import open_file; open_file(Path('own.csv'))"
    ),
    "classification": (
        "import torch; from aaren.classification import ReferenceClassifier, ReferenceClassifierConfig; "
        "ReferenceClassifier(ReferenceClassifierConfig(kind='dtw', num_channels=1, num_classes=2, length=3, "
        "num_cases=2))(torch.zeros(1, 3, 1))"
    ),
    "rl": "from aaren.rl.data import generate; generate('pendulum', episodes=1)",
    "cluster": "from aaren.lab.ray_workers import RayWorkers; RayWorkers('local', 1, threads=1)",
}
BUNDLES = {"all", "dev", "docs"}  # for developers, or sums of the others


def extras() -> set[str]:
    return set(distribution("aaren").metadata.get_all("Provides-Extra") or []) - BUNDLES


@pytest.mark.parametrize("extra", sorted(USES))
def test_a_missing_extra_fails_with_its_cure(extra, python, tmp_path):
    done = run(python, USES[extra], tmp_path)
    assert done.returncode == 1
    assert re.search(rf"MissingDependencyError: .*pip install 'aaren\[{extra}\]'", done.stderr), done.stderr


def test_every_extra_has_a_use_above():
    assert extras() == set(USES)
