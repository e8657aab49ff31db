"""The built wheel, in an environment that holds its declared core dependencies and nothing else."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import hatch_build
import pytest
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from support.markdown import python_blocks

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # compiles, once in every process of the tests


LIBRARY = f"aaren/ops/cpu/_kernels{hatch_build.this_platform().suffix}"
SOURCES = {path.name for path in (hatch_build.ROOT / "src").rglob("*.[ch]")}


def build(folder: Path, *words: str, **variables: str) -> Path:
    command = [sys.executable, "-m", "build", *words, "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | variables)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"), "--wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("source"), "--sdist")


def core_distributions() -> list[Distribution]:
    """Return what `pip install aaren` would bring, without any extra, all the way down."""
    found: dict[str, Distribution] = {}
    waiting = list(PROJECT["dependencies"])
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
    return install(wheel, tmp_path_factory.mktemp("empty"), "--no-index")


def install(package: Path, home: Path, *options: str, **variables: str) -> Path:
    """Make an environment with links to the core dependencies, and install a wheel or sdist there."""
    venv.create(home, with_pip=False, symlinks=True)
    executable = home / "bin" / "python"
    words = [executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())
    for dist in core_distributions():
        for top in {Path(str(file)).parts[0] for file in dist.files or []} - {"..", "__pycache__"}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(dist.locate_file(top))))
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *options, "--target", str(site)]
    done = subprocess.run([*words, str(package)], capture_output=True, text=True, env=os.environ | variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return executable


def run(python: Path, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code there; -E: not with the package of a checkout that PYTHONPATH may name."""
    return subprocess.run([python, "-E", "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)


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


INFO = "import sys; sys.argv = ['aaren', 'info']; from aaren.cli.main import main; main()"
SCAN = (
    "import torch; from aaren.ops import scan_attention; "
    "print(scan_attention(torch.zeros(1, 3, 1), torch.arange(3.0).view(1, 3, 1, 1))[0].flatten().tolist())"
)


def test_the_kernel_is_in_the_wheel_and_its_source_in_the_sdist(wheel, sdist):
    with zipfile.ZipFile(wheel) as archive:
        packed = [name for name in archive.namelist() if name.startswith("aaren/ops/cpu/")]
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        text = archive.read(about).decode()
    assert LIBRARY in packed
    assert not [name for name in packed if name.endswith((".c", ".h"))]
    assert wheel.name.endswith(f"-py3-none-{hatch_build.this_platform().tag}.whl")
    assert "Root-Is-Purelib: false" in text
    with tarfile.open(sdist) as archive:
        files = [Path(*Path(name).parts[1:]) for name in archive.getnames()]
    assert {path.name for path in files if path.suffix in (".c", ".h")} == SOURCES
    assert Path("hatch_build.py") in files
    assert not [path for path in files if path.stem == "_kernels"]


def test_the_installed_kernel_is_in_use(python, tmp_path):
    shown = run(python, INFO, tmp_path)
    assert re.search(r"^kernel +C for \w+ \(the best of ", shown.stdout, re.MULTILINE), (
        shown.stdout + shown.stderr
    )
    assert run(python, SCAN, tmp_path).stdout.strip() == "[0.0, 0.5, 1.0]"


def test_without_kernel_the_package_installs_and_says_how_to_get_it(tmp_path):
    wheel = build(tmp_path / "dist", "--wheel", AAREN_KERNEL="none")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "_kernels" in name]
    python = install(wheel, tmp_path / "empty", "--no-index")
    shown = " ".join(run(python, INFO, tmp_path).stdout.split())
    assert "kernel none: this installation was made without it; to get it, install gcc or clang" in shown
    done = run(python, SCAN, tmp_path)
    assert done.stdout.strip() == "[0.0, 0.5, 1.0]"
    assert len(done.stderr.strip().splitlines()) == 1  # one line says how to get the kernel
    assert "chunked" in done.stderr


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("compiler", "words"), [("gcc", "compiled by gcc"), ("", "compiled by zig cc, clang")]
)
def test_the_sdist_installs_with_and_without_a_compiler(compiler, words, sdist, tmp_path):
    if compiler and not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    if not compiler and not hatch_build.find_zig():
        pytest.skip("needs ziglang: pip install ziglang")
    empty = tmp_path / "bin"
    empty.mkdir()
    path = os.environ["PATH"] if compiler else str(empty)
    python = install(sdist, tmp_path / "empty", "--no-index", "--no-build-isolation", PATH=path)
    assert words in " ".join(run(python, INFO, tmp_path).stdout.split())


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ziglang_is_fetched_where_there_is_no_compiler(sdist, tmp_path):
    """As `pip install aaren` does on a bare machine: hatchling and ziglang come from PyPI."""
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(tmp_path / "wheels")]
    if subprocess.run([*fetch, "ziglang>=0.14", "hatchling"], capture_output=True).returncode:
        pytest.skip("needs PyPI")
    empty = tmp_path / "bin"
    empty.mkdir()
    python = install(sdist, tmp_path / "empty", "--find-links", str(tmp_path / "wheels"), PATH=str(empty))
    assert "compiled by zig cc" in " ".join(run(python, INFO, tmp_path).stdout.split())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_wheels_of_all_platforms(tmp_path):
    """Cross-compiled; their tags are checked by auditwheel, their metadata by twine, in `make wheels`."""
    if not hatch_build.find_zig():
        pytest.skip("needs ziglang: pip install ziglang")
    done = subprocess.run([ROOT / ".ci/wheels", tmp_path / "dist"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = {".so": b"\x7fELF", ".dylib": b"\xcf\xfa\xed\xfe", ".dll": b"MZ"}
    for tag, target in hatch_build.PLATFORMS.items():
        (wheel,) = (tmp_path / "dist").glob(f"*-py3-none-{tag}.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if "_kernels" in name)
            code = archive.read(name)
        assert name == f"aaren/ops/cpu/_kernels{target.suffix}"
        assert code.startswith(kinds[target.suffix])
        assert hatch_build.source_hash().encode() in code
        for instructions in hatch_build.INSTRUCTION_SETS[target.machine]:
            assert f"scan_backward_f64_{instructions}".encode() in code
        assert b"Py_" not in code
    native = [wheel for wheel in (tmp_path / "dist").glob("*.whl") if _runs_here(wheel)]
    if native:
        python = install(native[0], tmp_path / "empty", "--no-index")
        assert run(python, SCAN, tmp_path).stdout.strip() == "[0.0, 0.5, 1.0]"


def _runs_here(wheel: Path) -> bool:
    return not parse_wheel_filename(wheel.name)[3].isdisjoint(sys_tags())


# One use of each extra; without it, the error holds the line that installs it.
USES = {
    "triton": (
        "import torch; from aaren.ops import scan_attention; "
        "scan_attention(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1, 1), backend='triton')"
    ),
    "report": "import sys; from aaren.cli.report import report; report([], None, None)",
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
    "export": (
        "import torch; from pathlib import Path; from aaren.nn import Encoder; "
        "from aaren.export import export_stream; "
        "export_stream(Encoder(width=4, num_heads=1, num_layers=1).eval(), Path('out'), to='wasm', "
        "example=torch.zeros(1, 4))"
    ),
    "demo": (
        "from pathlib import Path; from rich.console import Console; from aaren.demo.run import run; "
        "run(Path('out'), console=Console())"
    ),
    "onnx": (
        "import torch; from pathlib import Path; from aaren.nn import Encoder; "
        "from aaren.export import export_stream; "
        "export_stream(Encoder(width=4, num_heads=1, num_layers=1).eval(), Path('out'), to='onnx', "
        "example=torch.zeros(1, 4))"
    ),
    "serve": "from aaren.cli.serve import serve; serve(None, None)",
    "spark": "from aaren.integrations import spark",
    "cluster": "from aaren.lab.run import run_on_ray; run_on_ray([], 'local', say=print)",
}
BUNDLES = {"all", "dev", "docs"}  # for developers, or sums of the others


def extras() -> set[str]:
    return set(PROJECT["optional-dependencies"]) - BUNDLES


@pytest.mark.parametrize("extra", sorted(USES))
def test_a_missing_extra_fails_with_its_cure(extra, python, tmp_path):
    done = run(python, USES[extra], tmp_path)
    assert done.returncode == 1
    assert re.search(rf"MissingDependencyError: .*pip install 'aaren\[{extra}\]'", done.stderr), done.stderr


def test_every_extra_has_a_use_above():
    assert extras() == set(USES)
