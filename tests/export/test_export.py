"""Exported C and WebAssembly: the numbers of torch, states that are checked, names that cannot break out."""

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aaren.classification import Classifier, ClassifierConfig
from aaren.errors import ConfigError, DataError
from aaren.events import EventModel, EventModelConfig
from aaren.export.artifact import Artifact, build_library, read_rows
from aaren.export.compile import compile_step
from aaren.export.program import BAD_INPUT, BAD_TIME, BAD_WEIGHTS, OK
from aaren.export.whole import find_whole_step
from aaren.export.write import c_string, export_stream, identifier
from aaren.forecasting import StreamingForecaster, StreamingForecasterConfig
from aaren.forecasting.data import time_marks
from aaren.nn import Encoder, EncoderConfig
from aaren.ops.cpu import library
from aaren.rl import DecisionModel, DecisionModelConfig
from aaren.stream.raw import calendar_marks

pytestmark = pytest.mark.skipif(
    not library.is_available() or not shutil.which("gcc"), reason="no compiled library, or no gcc"
)
HOSTILE = ['a"b', "back\\slash", "line\nend", "??/", "*/ int x;", "ünï", "%s", ""]
LEARNED = {"columns": HOSTILE[:2], "mean": [1e-3, 50.0], "deviation": [1e-4, 7.0]}


def forecaster() -> StreamingForecaster:
    """Return a small forecaster of rows with dates."""
    torch.manual_seed(0)
    config = StreamingForecasterConfig(num_series=2, horizon_steps=3, width=16, num_heads=2, decay="learned")
    model = StreamingForecaster(config).eval()
    model.preprocessing = LEARNED
    return model


def rows(count: int) -> np.ndarray:
    """Return raw rows: two series in their units, and seconds since 1970."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((count, 2)) * LEARNED["deviation"] + LEARNED["mean"]
    return np.column_stack([values, 1.5e9 + 3600.0 * np.arange(count)])


def test_raw_rows_give_the_forecasts_of_torch(tmp_path: Path) -> None:
    found = export_stream(forecaster(), tmp_path, check=rows(60))
    assert found.largest_difference is not None
    assert found.largest_difference < 1e-5
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [part["name"] for part in manifest["inputs"]] == ["row", "time"]
    assert manifest["inputs"][0]["names"] == HOSTILE[:2]
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-fsanitize=address,undefined"]
    subprocess.run(["make", "-s", "main", "CFLAGS=-O1 " + " ".join(flags)], cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], input=rows(60).tobytes(), capture_output=True, cwd=tmp_path, check=True)
    assert len(done.stdout) == 60 * 6 * 8
    assert done.stderr == b""


def test_a_classifier_and_an_event_model_are_those_of_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ClassifierConfig(
        num_channels=2, num_classes=3, length=9, embedding="causal", head="pooled", width=16, num_heads=2
    )
    learned = {"classes": HOSTILE[:3], "mean": [1.0, 2.0], "deviation": [3.0, 0.5]}
    classifier = Classifier(config).eval()
    classifier.preprocessing = learned
    found = export_stream(classifier, tmp_path / "a", check=rows(30)[:, :2])
    assert found.largest_difference is not None
    assert found.largest_difference < 1e-5
    events = np.column_stack([np.arange(1.0, 31.0) ** 1.1, np.arange(30) % 4])
    model = EventModel(EventModelConfig(num_marks=4, width=16, num_heads=2)).eval()
    model.preprocessing = {"mark_names": HOSTILE[:4]}
    found = export_stream(model, tmp_path / "b", check=events)
    assert found.largest_difference is not None
    assert found.largest_difference < 1e-5


def test_a_model_of_ones_own_needs_an_example(tmp_path: Path) -> None:
    encoder = Encoder(EncoderConfig(width=8, num_heads=2, num_layers=1)).eval()
    with pytest.raises(ConfigError, match="give example="):
        export_stream(encoder, tmp_path)
    items = np.random.default_rng(0).standard_normal((20, 8))
    for options in ({}, {"state": "f32"}, {"weights": "int8"}):
        found = export_stream(encoder, tmp_path, example=torch.zeros(1, 8), check=items, **options)
        assert found.largest_difference is not None
        assert found.largest_difference < (0.1 if options.get("weights") else 1e-5)


def exported(model: torch.nn.Module, folder: Path) -> Artifact:
    """Export a model and load what was written."""
    export_stream(model, folder)
    whole = find_whole_step(model)
    step = compile_step(whole.run, list(whole.inputs.values()), whole.state, largest=whole.largest)
    return Artifact(build_library(folder, folder / "model.so"), step.program)


def test_events_out_of_order_or_of_no_kind_are_refused_and_leave_no_trace(tmp_path: Path) -> None:
    artifact = exported(EventModel(EventModelConfig(num_marks=3, width=16, num_heads=2)).eval(), tmp_path)

    def push(time: float, mark: int) -> int:
        return artifact.step([torch.tensor([time], dtype=torch.float64), torch.tensor([mark])])[0]

    assert push(5.0, 0) == OK  # the first one sets the clock
    assert push(6.5, 2) == OK
    before = artifact.state.raw
    for time, mark, code in (
        (6.5, 1, BAD_TIME),
        (6.0, 1, BAD_TIME),
        (float("nan"), 1, BAD_INPUT),
        (float("inf"), 1, BAD_INPUT),
        (7.0, 3, BAD_INPUT),
        (7.0, -1, BAD_INPUT),
    ):
        assert push(time, mark) == code, (time, mark)
        assert artifact.state.raw == before
    assert push(7.0, 1) == OK


@pytest.mark.parametrize("actions", ["box", "discrete"])
def test_a_policy_acts_as_with_torch(actions: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = DecisionModelConfig(
        state_size=3, action_size=2, actions=actions, width=16, num_layers=1, max_steps=64, target_return=5.0
    )
    model = DecisionModel(config).eval()
    model.set_scales(state_mean=torch.tensor([1.0, 2.0, 3.0]), state_std=torch.tensor([0.5, 1.0, 2.0]))
    seen = np.random.default_rng(0).standard_normal((20, 4))
    found = export_stream(model, tmp_path, check=seen)
    assert found.largest_difference is not None
    assert found.largest_difference < 1e-5
    session, artifact = model.stream(engine="torch"), exported(model, tmp_path)
    for row in seen:
        code, (action, _) = artifact.step([torch.tensor(row[:3])[None], torch.tensor(row[3:])])
        assert code == OK
        np.testing.assert_allclose(action, session.push(row[:3], row[3]), atol=1e-5)
    assert artifact.step([torch.full((1, 3), 1e300, dtype=torch.float64), torch.zeros(1)])[0] == BAD_INPUT


def test_weights_in_a_file_of_their_own_are_checked_and_passed_in(tmp_path: Path) -> None:
    model, given = forecaster(), rows(40)
    plain = export_stream(model, tmp_path, check=given)
    found = export_stream(model, tmp_path, weights_file=True, check=given)  # over the other one
    assert "aaren_weights.c" in plain.files
    assert not (tmp_path / "aaren_weights.c").exists()
    assert found.manifest["weights_file"] == "weights.bin"
    assert found.largest_difference == plain.largest_difference
    content = (tmp_path / "weights.bin").read_bytes()
    assert found.manifest["weight_bytes"] <= len(content) - 32 < found.manifest["weight_bytes"] + 32
    subprocess.run(["make", "-s", "main", "libaaren_model.so", "CFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror"],
                   cwd=tmp_path, check=True)  # fmt: skip
    done = subprocess.run(["./main"], input=given.tobytes(), capture_output=True, cwd=tmp_path, check=True)
    script = "import aaren_model as m; s = m.Stream()\n"
    script += f"for row in {given.tolist()}: found = s.push(row=row[:2], time=row[2])\n"
    script += "print(found['forecast'].tolist())"
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    np.testing.assert_array_equal(json.loads(said.stdout), np.frombuffer(done.stdout).reshape(40, 3, 2)[-1])
    functions = ctypes.CDLL(str(tmp_path / "libaaren_model.so"))
    check, step = functions.aaren_check_weights, functions.aaren_step
    held = ctypes.create_string_buffer(len(content) + 16)
    start = ctypes.addressof(held) + -ctypes.addressof(held) % 8
    state, row, answer = (ctypes.create_string_buffer(100_000) for _ in range(3))

    def codes(content: bytes, place: int = 0) -> tuple[int, int]:
        ctypes.memmove(start + place, content, len(content))
        at = ctypes.c_void_p(start + place)
        return check(at, ctypes.c_size_t(len(content))), step(at, state, row, answer)

    functions.aaren_init(state)
    assert codes(content) == (OK, OK)
    assert codes(content, place=4) == (BAD_WEIGHTS, BAD_WEIGHTS)  # not aligned
    for damage in (0, 9, 17, 25):  # in the header, which every step looks at
        damaged = bytearray(content)
        damaged[damage] ^= 1
        assert codes(bytes(damaged)) == (BAD_WEIGHTS, BAD_WEIGHTS)
    damaged = bytearray(content)
    damaged[-40] ^= 1  # in the weights
    assert codes(bytes(damaged))[0] == BAD_WEIGHTS
    assert codes(content[:-8])[0] == BAD_WEIGHTS
    assert step(None, state, row, answer) == BAD_WEIGHTS
    (tmp_path / "weights.bin").write_bytes(bytes(damaged))
    done = subprocess.run(["./main"], input=b"", capture_output=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (1, b"no weights of this model: main weights.bin\n")
    with pytest.raises(ConfigError, match="are for c; onnx is one file already"):
        export_stream(model, tmp_path, to="onnx", weights_file=True)
    export_stream(model, tmp_path)
    assert not (tmp_path / "weights.bin").exists()


def test_the_wrapper_refuses_a_library_of_another_model(tmp_path: Path) -> None:
    export_stream(forecaster(), tmp_path)
    flags = "CFLAGS=-O0"
    subprocess.run(["make", "-s", "libaaren_model.so", flags], cwd=tmp_path, check=True)
    words = [sys.executable, "-c", "import aaren_model; print(aaren_model.Stream().outputs.keys())"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "forecast" in done.stdout, done.stderr
    other = EventModel(EventModelConfig(num_marks=3, width=16, num_heads=2)).eval()
    export_stream(other, tmp_path)  # not compiled yet
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "and manifest.json are of two models: make clean libaaren_model.so" in done.stderr


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([3.0, 1.5], "row 2 of the check: mark must be whole numbers"),
        ([3.0, np.nan], "row 2 of the check: .* is not finite"),
        ([2.0, 1.0], "row 2 of the check is refused by the artifact with code 5"),
        ([3.0, 9.0], "row 2 of the check: "),
    ],
)
def test_rows_that_cannot_be_checked_with_are_named(tmp_path: Path, row: list[float], words: str) -> None:
    model = EventModel(EventModelConfig(num_marks=3, width=16, num_heads=2)).eval()
    with pytest.raises(DataError, match=words):
        export_stream(model, tmp_path, check=np.array([[1.0, 0.0], [2.0, 1.0], row]))


def test_a_check_without_rows_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows to check with"):
        export_stream(forecaster(), tmp_path, check=np.zeros((0, 3)))
    (tmp_path / "rows.csv").write_text("")
    with pytest.raises(DataError, match=r"rows\.csv: expected rows of numbers"):
        read_rows(tmp_path / "rows.csv")


def test_the_stack_that_a_step_needs_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    found = export_stream(forecaster(), folder)
    command = ["gcc", "-O1", "-c", "-fstack-usage", "aaren_model.c"]
    subprocess.run(command, cwd=folder, check=True)
    lines = (folder / "aaren_model.su").read_text().splitlines()
    used = next(int(line.split("\t")[1]) for line in lines if "aaren_step" in line)
    assert found.manifest["stack_bytes"] <= used < found.manifest["stack_bytes"] + 1024


def test_dates_become_the_marks_of_training() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.integers(-2_000_000_000, 4_000_000_000, 2000)
    wanted = time_marks(seconds.astype("datetime64[s]"))
    found = calendar_marks(torch.from_numpy(seconds.astype(np.float64)))
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6)


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_names_stay_inside_their_literals(text: str) -> None:
    literal = c_string(text)
    assert literal.isascii()
    assert literal[1:-1].replace("\\", "").isprintable()
    assert '"' not in literal[1:-1]
    assert identifier(text).isidentifier()


@pytest.mark.long  # a first compilation by zig takes minutes
@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_webassembly_gives_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    encoder = Encoder(EncoderConfig(width=8, num_heads=2, num_layers=1)).eval().fold()
    found = export_stream(encoder, tmp_path, to="wasm", example=torch.zeros(1, 8))
    assert (tmp_path / "aaren_model.wasm").stat().st_size < found.manifest["weight_bytes"] + 60_000
    items = torch.randn(10, 8)
    script = f"""
    import {{ load }} from "./aaren_model.js";
    const stream = await load();
    for (const item of {json.dumps(items.tolist())}) var found = stream.push({{ item }});
    const saved = stream.state;
    stream.state = saved;
    saved[40] ^= 1;
    try {{ stream.state = saved; }} catch (error) {{ console.log(JSON.stringify(Array.from(found.output))); }}
    """
    (tmp_path / "run.mjs").write_text(script)
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    state = encoder.init_state(1)
    with torch.no_grad():
        for item in items:
            wanted, state = encoder.step(item.unsqueeze(0), state)
    torch.testing.assert_close(torch.tensor(json.loads(done.stdout)), wanted[0], rtol=1e-5, atol=1e-5)
    wide = StreamingForecasterConfig(num_series=64, num_marks=0, horizon_steps=512, width=8, num_heads=2)
    rows = np.random.default_rng(0).standard_normal((3, 64))
    export_stream(StreamingForecaster(wide).eval(), tmp_path / "wide", to="wasm", check=rows)  # a large stack
