"""figures.json: written when a run finishes, or later for one that was trained before."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.engine.config import RunConfig
from aaren.engine.run import FIGURES, train
from aaren.engine.use import draw_run
from support.toy_task import ToyExperiment

ToyRun = Callable[..., RunConfig]


def test_a_run_without_figures_leaves_no_file(toy_run: ToyRun, tmp_path: Path) -> None:
    train(toy_run(epochs=1, checkpoint_seconds=1e9), tmp_path)
    assert not (tmp_path / FIGURES).exists()
    assert draw_run(tmp_path) is None


def test_figures_are_the_same_at_the_end_and_afterwards(
    toy_run: ToyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figures(self: ToyExperiment, model: object) -> dict[str, object]:
        found = model(self.inputs[:3])  # with dropout it would change
        assert not found.requires_grad
        return {"forecast": found.flatten().tolist(), "nothing": float("nan")}

    monkeypatch.setattr(ToyExperiment, "figures", figures)
    train(toy_run(epochs=1, checkpoint_seconds=1e9), tmp_path)
    at_the_end = json.loads((tmp_path / FIGURES).read_text())
    assert len(at_the_end["forecast"]) == 3
    assert at_the_end["nothing"] is None
    (tmp_path / FIGURES).unlink()
    assert draw_run(tmp_path) == tmp_path / FIGURES
    (tmp_path / FIGURES).unlink()
    result = CliRunner().invoke(app, ["evaluate", str(tmp_path), "--figures"])
    assert (result.exit_code, result.stdout.strip()) == (0, str(tmp_path / FIGURES)), result.output
    assert json.loads((tmp_path / FIGURES).read_text()) == at_the_end
