"""`aaren check`: what is right passes, what is wrong is named, and misuse is explained."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aaren import check
from aaren.cli.main import main
from aaren.ops import dispatch
from aaren.ops.state import ScanState

CPU = torch.device("cpu")
FLOAT32 = {torch.float32: 4e-6}


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["aaren", "check", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


@pytest.mark.slow
def test_a_right_installation_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "--json", str(tmp_path / "check.json")) == 0
    printed = capsys.readouterr().out
    assert "triton skipped: runs on cuda only" in printed
    content = json.loads((tmp_path / "check.json").read_text())
    assert content["is_right"] is True
    assert {row["name"] for row in content["checks"]} >= {*dispatch.BACKENDS, "gru", "aaren, decay"}
    assert len(content["ratios"]) == 3
    assert min(content["ratios"].values()) > 0.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_backend_and_mixer_is_right_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "--device", "cuda") == 0


def test_a_wrong_backend_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = dispatch.BACKENDS["ladner_fischer"]

    def wrong(*inputs: object) -> tuple[Tensor, ScanState, Tensor | None]:
        outputs, state, logs = right(*inputs)  # type: ignore[arg-type]
        return outputs + 1e-4, state, logs

    def broken(*_: object) -> tuple[Tensor, ScanState]:
        raise RuntimeError("no such kernel")

    monkeypatch.setitem(dispatch.BACKENDS, "ladner_fischer", wrong)
    monkeypatch.setitem(dispatch.BACKENDS, "chunked", broken)
    monkeypatch.setattr(check, "SCAN_LIMITS", FLOAT32)
    monkeypatch.setattr(check, "MIXERS", ("gru",))
    monkeypatch.setattr(check, "measure", lambda _: {})
    assert call(monkeypatch) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(r"ladner_fischer \de-0[45] wrong", printed)
    assert "chunked wrong: RuntimeError: no such kernel" in printed
    assert printed.count(" right") == len(dispatch.BACKENDS) - 3 + 2  # triton is skipped


def test_a_nan_is_beyond_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    error = check.difference([torch.tensor([1.0, torch.nan])], [torch.ones(2)])
    monkeypatch.setattr(check, "mixer_error", lambda *_: error)
    assert [row.verdict for row in check.checks_of(CPU, ["gru"])] == ["wrong"]


def test_an_unknown_device_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--device", "gpu") == 2
    assert "there is no device 'gpu' here" in capsys.readouterr().err
