"""Exported C on other processors, under qemu: the numbers of this machine, in a small device's memory."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from aaren.events import EventModel, EventModelConfig
from aaren.export import export_stream
from aaren.ops.cpu import library

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not library.is_available() or not shutil.which("gcc"), reason="nothing to compare with"
    ),
]
FIRMWARE = Path(__file__).parent / "firmware"
SOURCES = ["aaren_model.c", "aaren_weights.c", "aaren_runtime.c"]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
FLASH_BYTES, RAM_BYTES = 256 * 1024, 32 * 1024


def require(*tools: str) -> None:
    """Skip where a tool is missing."""
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        pytest.skip(f"no {', '.join(missing)}")


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Export a 2-layer event model of width 32, int8 weights; return its folder and the answers here."""
    torch.manual_seed(0)
    model = EventModel(EventModelConfig(num_marks=3, width=32, num_heads=4, num_layers=2)).eval()
    export_stream(model, tmp_path, weights="int8")
    rows = np.zeros(60, dtype=[("time", "<f8"), ("mark", "<i8")])
    rows["time"], rows["mark"] = np.arange(1.0, 61.0) ** 1.1, np.arange(60) % 3
    (tmp_path / "rows.bin").write_bytes(rows.tobytes())
    return tmp_path, run(tmp_path, ["gcc"], [])


def run(folder: Path, compiler: list[str], runner: list[str]) -> np.ndarray:
    """Compile the example and let it read the rows."""
    command = [*compiler, *STRICT, "-O2", "-static", "main.c", *SOURCES, "-o", "main", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    given = (folder / "rows.bin").read_bytes()
    done = subprocess.run([*runner, "./main"], input=given, capture_output=True, cwd=folder, check=True)
    assert done.stderr == b""
    return np.frombuffer(done.stdout, "<f8")


@pytest.mark.parametrize(
    ("compiler", "runner"),
    [("aarch64-linux-gnu-gcc", "qemu-aarch64"), ("arm-linux-gnueabihf-gcc", "qemu-arm")],
)
def test_arm_gives_the_same_numbers(compiler: str, runner: str, exported: tuple[Path, np.ndarray]) -> None:
    require(compiler, runner)
    folder, wanted = exported
    np.testing.assert_allclose(run(folder, [compiler], [runner]), wanted, rtol=0.0, atol=1e-6)


def test_a_cortex_m4_gives_the_same_numbers_in_little_memory(
    exported: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    require("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm")
    folder, wanted = exported
    for file in FIRMWARE.iterdir():
        shutil.copy(file, folder)
    processor = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
    small = ["-Os", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-nostartfiles"]
    libraries = ["-T", "cortex_m4.ld", "--specs=nano.specs", "--specs=nosys.specs", "-lm"]
    command = ["arm-none-eabi-gcc", *STRICT, *processor, *small, "cortex_m4.c", *SOURCES, *libraries]
    subprocess.run([*command, "-o", "firmware.elf"], cwd=folder, check=True)
    sizes = subprocess.run(
        ["arm-none-eabi-size", "firmware.elf"], cwd=folder, capture_output=True, text=True, check=True
    )
    text, data, bss = map(int, sizes.stdout.splitlines()[1].split()[:3])
    board = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none"]
    board += ["-semihosting-config", "enable=on,target=native", "-kernel", "firmware.elf"]
    done = subprocess.run(board, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    stack = int((done.stdout + done.stderr).split()[-1])
    found = np.frombuffer((folder / "answers.bin").read_bytes(), "<f8")
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-6)
    with capsys.disabled():
        print(f"\nCortex-M4F: {text + data:,} bytes of flash, {data + bss + stack:,} of RAM")
    assert text + data < FLASH_BYTES
    assert data + bss + stack < RAM_BYTES
