"""Every saved estimator exports by the command line, and its artifact answers as its own stream does."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from aaren import AarenClassifier, AarenForecaster
from aaren.cli.main import app
from aaren.events import AarenEventForecaster
from aaren.export.artifact import Artifact, OnnxStream, build_library
from aaren.export.compile import compile_step
from aaren.export.whole import Exportable, find_whole_step
from aaren.ops.cpu import library
from aaren.rl import AarenPolicy

pytestmark = pytest.mark.skipif(
    not library.is_available() or not shutil.which("gcc"), reason="no compiled library, or no gcc"
)
STEPS = 30


def hourly(count: int, start: str = "2026-01-01") -> pd.DataFrame:
    """Return two series by the hour."""
    times = pd.date_range(start, periods=count, freq="h")
    hours = np.arange(count)
    waves = np.sin(2 * np.pi * hours / 24)
    noise = np.random.default_rng(0).normal(0.0, 0.1, (count, 2))
    return pd.DataFrame(
        {"ds": times, "load": 50 + 5 * waves + noise[:, 0], "price": 1e-4 * (3 + noise[:, 1])}
    )


def forecaster() -> tuple[AarenForecaster, np.ndarray, list[np.ndarray]]:
    """Fit, and return rows that follow with the forecasts of the estimator's stream."""
    frame = hourly(400)
    model = AarenForecaster(horizon=6).fit(frame[:370])
    session, rows, wanted = model.stream(), [], []
    size = sum(part.numel() for part in model.whole_step().inputs.values())  # with the time, or without
    for _, row in frame[370:].iterrows():
        values = [row["load"], row["price"]]
        rows.append([*values, row["ds"].timestamp()][:size])
        wanted.append(session.push(values, when=row["ds"]).numpy())
    return model, np.array(rows), wanted


def classifier() -> tuple[AarenClassifier, np.ndarray, list[np.ndarray]]:
    """Fit the default classifier and return samples with the probabilities of its stream."""
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 6, (24, 1))
    waves = np.sin(np.arange(40) * np.where(np.arange(24) % 2, 0.2, 0.5)[:, None] + phase)
    panel = np.stack([100.0 * waves, rng.normal(size=(24, 40))], axis=1)
    model = AarenClassifier(size="small", random_state=0).fit(panel, np.array(["slow", "fast"] * 12))
    session = model.stream(engine="torch")
    samples = panel[3].T[:STEPS]
    return model, samples, [np.asarray(session.push(sample)) for sample in samples]


def events() -> tuple[AarenEventForecaster, np.ndarray, list[np.ndarray]]:
    """Fit on dates and return events, in seconds since 1970, with the probabilities of kinds."""
    rng = np.random.default_rng(0)
    seconds = rng.exponential(3600.0, 240).cumsum()
    log = pd.DataFrame(
        {
            "sequence": np.repeat([f"u{number}" for number in range(6)], 40),
            "time": pd.Timestamp("2026-03-01") + pd.to_timedelta(seconds, unit="s"),
            "kind": rng.choice(["buy", "look", "leave"], 240),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that more updates would be better
        model = AarenEventForecaster(updates=3, width=16, random_state=1).fit(log)
    session, rows, wanted = model.stream(engine="torch"), [], []
    moments = pd.Timestamp("2026-04-01") + pd.to_timedelta(np.arange(1, STEPS + 1) * 977.0, unit="s")
    for number, moment in enumerate(moments):
        kind = model.kinds_[number % len(model.kinds_)]
        coming = session.push(moment, kind)
        rows.append([moment.timestamp(), number % len(model.kinds_)])
        wanted.append(np.array(list(coming.probabilities.values())))
    return model, np.array(rows), wanted


def policy() -> tuple[AarenPolicy, np.ndarray, list[np.ndarray]]:
    """Fit and return observations and rewards with the actions of its session, over several contexts."""
    rng = np.random.default_rng(0)
    episodes = [
        {
            "observations": rng.normal(size=(30, 3)),
            "actions": rng.normal(size=(30, 2)).clip(-1, 1),
            "rewards": rng.normal(size=30),
        }
        for _ in range(8)
    ]
    model = AarenPolicy(updates=4, width=16, context_steps=7, random_state=0).fit(episodes)
    session, rows, wanted = model.stream(engine="torch"), [], []
    for number in range(STEPS):
        seen, reward = rng.normal(size=3), 0.0 if number == 0 else 0.5
        rows.append([*seen, reward])
        wanted.append(np.asarray(session.push(seen, None if number == 0 else reward)))
    return model, np.array(rows), wanted


CASES = {"forecast": forecaster, "probabilities": classifier, "mark_probabilities": events, "action": policy}


@pytest.mark.parametrize("output", CASES)
@pytest.mark.parametrize("to", ["c", "onnx", pytest.param("wasm", marks=pytest.mark.long)])
def test_a_saved_estimator_becomes_an_artifact_that_answers_as_its_stream(
    output: str, to: str, tmp_path: Path
) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    if to == "wasm" and not shutil.which("node"):
        pytest.skip("no node")
    model, rows, wanted = CASES[output]()
    model.save(tmp_path / "saved")
    np.save(tmp_path / "rows.npy", rows)
    words = ["export", str(tmp_path / "saved"), "--to", to, "-o", str(tmp_path / "made")]
    done = CliRunner().invoke(app, [*words, "--check", str(tmp_path / "rows.npy")])
    assert done.exit_code == 0, done.output
    assert "difference from torch" in done.output
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    assert output in [part["name"] for part in manifest["outputs"]]
    if to == "wasm":
        return
    answer = (answers_of_c if to == "c" else answers_of_onnx)(model, tmp_path / "made", output)
    for row, want in zip(rows, wanted, strict=True):
        found = answer(row)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(want).max())))


def answers_of_c(model: Exportable, folder: Path, output: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what the compiled artifact says after a row."""
    whole = find_whole_step(model)
    examples = list(whole.inputs.values())
    program = compile_step(whole.run, examples, whole.state, largest=whole.largest).program
    artifact = Artifact(build_library(folder, folder / "model.so"), program)
    ends = np.cumsum([example.numel() for example in examples])

    def answer(row: np.ndarray) -> np.ndarray:
        given = [torch.from_numpy(part) for part in np.split(row, ends[:-1])]
        code, found = artifact.step(given)
        assert code == 0
        return found[whole.outputs.index(output)].numpy()

    return answer


def answers_of_onnx(model: Exportable, folder: Path, output: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what onnxruntime says after a row."""
    inputs = find_whole_step(model).inputs
    stream = OnnxStream(folder / "model.onnx")
    ends = np.cumsum([example.numel() for example in inputs.values()])

    def answer(row: np.ndarray) -> np.ndarray:
        parts = np.split(row, ends[:-1])
        given = {
            name: part.reshape(example.shape).astype(example.numpy().dtype)
            for part, (name, example) in zip(parts, inputs.items(), strict=True)
        }
        code, found = stream.step(given)
        assert code[0] == 0
        return found[output][0]

    return answer
