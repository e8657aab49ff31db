"""`aaren check`: what is right passes, and what is wrong is named."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aaren.check import backends, models
from aaren.check import run as check
from aaren.check.outcome import Outcome, attempt, difference
from aaren.cli.main import main
from aaren.ops import dispatch
from aaren.ops.state import ScanState

CPU = torch.device("cpu")


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["aaren", "check", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def checked(setting: str, name: str) -> Outcome:
    return attempt("model", name, torch.float32, lambda: models._check_model(setting, name, CPU))


def test_a_right_installation_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(backends, "SCAN_LIMITS", {torch.float32: 4e-6})
    path = tmp_path / "check.json"
    assert call(monkeypatch, "--only", "backends", "--only", "mixers", "--json", str(path)) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "skipped triton: runs on cuda only" in printed
    found = json.loads(path.read_text())
    assert found["is_right"] is True
    assert {"versions", "machine", "device", "limits"} <= found.keys()
    names = {(outcome["group"], outcome["name"]) for outcome in found["outcomes"]}
    assert names >= {("backend", name) for name in dispatch.BACKENDS} | {("mixer", "gru")}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.timeout(1200)
def test_every_backend_mixer_and_model_is_right_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "--device", "cuda") == 0


def test_a_model_without_gradients_is_skipped() -> None:
    outcome = checked("classification", "aaren-features")
    assert (outcome.verdict, outcome.skipped) == ("skipped", "fitted at once, without gradients")


def test_a_wrong_backend_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = dispatch.BACKENDS["ladner_fischer"]

    def wrong(*inputs: object) -> tuple[Tensor, ScanState]:
        outputs, state = right(*inputs)  # type: ignore[arg-type]
        return outputs + 1e-4, state

    monkeypatch.setitem(dispatch.BACKENDS, "ladner_fischer", wrong)
    monkeypatch.setattr(backends, "SCAN_LIMITS", {torch.float32: 4e-6})
    assert call(monkeypatch, "--only", "backends") == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "wrong: backend ladner_fischer (float32): forward is off by" in printed
    assert printed.count("wrong:") == 1


def test_a_backend_that_raises_has_failed_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> tuple[Tensor, ScanState]:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(backends, "BACKENDS", {"chunked": broken, "fused": None})
    monkeypatch.setitem(dispatch.BACKENDS, "chunked", broken)
    monkeypatch.setattr(backends, "SCAN_LIMITS", {torch.float32: 4e-6})
    found = [run() for run in backends.check_backends(CPU)]
    assert [outcome.verdict for outcome in found] == ["FAILED", "right"]
    assert found[0].failure == "RuntimeError: no such kernel"


@pytest.mark.parametrize(
    ("setting", "name"),
    [pytest.param("events", "aaren-decay", marks=pytest.mark.slow), ("forecasting", "streaming")],
)
def test_a_model_is_held_to_its_float64_self_and_trained(setting: str, name: str) -> None:
    found = checked(setting, name)
    assert found.verdict == "right"
    assert list(found.errors) == ["forward", "backward", "step", "20 updates"]
    assert min(found.errors.values()) > 0.0  # other arithmetic, so not the same bits


def test_models_of_all_settings_are_found_and_references_are_not() -> None:
    for setting in ("forecasting", "classification", "events", "rl"):
        assert {"aaren", "transformer"} <= set(models._model_names(setting))
    assert "poisson" not in models._model_names("events")
    assert "minirocket" not in models._model_names("classification")


def test_a_nan_is_beyond_every_limit() -> None:
    error = difference([torch.tensor([1.0, torch.nan])], [torch.ones(2)])
    outcome = Outcome(
        group="backend", name="x", dtype="float32", errors={"forward": error}, limits={"forward": 1.0}
    )
    assert outcome.verdict == "FAILED"


def test_triton_is_advised_only_where_it_is_right_and_faster() -> None:
    def triton(error: float) -> list[Outcome]:
        return [
            Outcome(
                group="backend",
                name="triton",
                dtype="float32",
                errors={"forward": error},
                limits={"forward": 1e-6},
            )
        ]

    fast, slow = {"chunked": 2.0, "triton": 1.0}, {"chunked": 1.0, "triton": 2.0}
    assert "export AAREN_BACKEND=triton" in check._advice(triton(0.0), fast)
    assert check._advice(triton(0.0), slow) == check._advice(triton(1.0), fast) == ""


def test_misuse_is_explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--device", "gpu") == 2
    assert "there is no device 'gpu' here" in capsys.readouterr().err
    assert call(monkeypatch, "--only", "backend") == 2
    assert "did you mean 'backends'" in capsys.readouterr().err
