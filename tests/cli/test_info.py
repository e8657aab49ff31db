import platform

import torch

from aaren.cli.info import info
from aaren.ops.cpu import library
from aaren.version import __version__


def test_info_fits_on_one_screen_and_names_the_kernel(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("AAREN_DATA", f"{tmp_path}:{tmp_path / 'nowhere'}")
    info()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    text = " ".join(" ".join(lines).split())
    assert text.startswith(f"aaren {__version__} Python {platform.python_version()} on ")
    for fact in (f"torch {torch.__version__}", f"kernel {library.describe()}", "devices cpu"):
        assert fact in text
    assert f"threads {torch.get_num_threads()}" in text
    assert f"data {tmp_path} data {tmp_path / 'nowhere'} (not there yet)" in text
