"""Exported ONNX: the numbers of torch in batches of any size, states by name, items refused with codes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.export.test_native import CONFIGS, SMALL
from torch import Tensor

from aaren.classification import Classifier, ClassifierConfig
from aaren.errors import ConfigError
from aaren.events import EventModel, EventModelConfig
from aaren.export import export_stream
from aaren.export.artifact import OnnxStream
from aaren.export.onnx import _Graph, write_onnx
from aaren.export.program import CODES
from aaren.export.record import record
from aaren.export.whole import find_whole_step
from aaren.forecasting import StreamingForecaster, StreamingForecasterConfig
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.rl import DecisionModel, DecisionModelConfig

pytest.importorskip("onnxruntime")
LEARNED = {"columns": ["a", "b"], "mean": [1e-3, 50.0], "deviation": [1e-4, 7.0]}


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_every_encoder_agrees_with_torch_in_a_batch(options: dict, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(**SMALL | options)).eval().fold()
    width, count = encoder.config.width, 3
    whole = find_whole_step(encoder, example=torch.zeros(1, width))
    write_onnx(tmp_path / "model.onnx", whole, {})
    stream, state = OnnxStream(tmp_path / "model.onnx", count=count), encoder.init_state(count)
    for _ in range(20):
        items = torch.randn(count, width)
        codes, found = stream.step({"item": items.numpy()})
        assert codes.tolist() == [0] * count
        with torch.no_grad():
            wanted, state = encoder.step(items, state)
        np.testing.assert_allclose(found["output"], wanted, rtol=1e-5, atol=1e-5)


def test_a_mask_is_an_input_of_truths(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(**SMALL)).eval().fold()
    whole = find_whole_step(encoder, example=torch.zeros(1, encoder.config.width))
    whole.inputs["mask"] = torch.ones(1, dtype=torch.bool)

    def run(inputs: list[Tensor], state: EncoderState) -> tuple[list[Tensor], EncoderState]:
        output, state = encoder.step(inputs[0], state, mask=inputs[1])
        return [output], state

    whole.run = run
    write_onnx(tmp_path / "model.onnx", whole, {})
    stream, state = OnnxStream(tmp_path / "model.onnx", count=4), encoder.init_state(4)
    for _ in range(20):
        items, mask = torch.randn(4, encoder.config.width), torch.rand(4) < 0.7
        codes, found = stream.step({"item": items.numpy(), "mask": mask.numpy()})
        assert codes.tolist() == [0] * 4
        with torch.no_grad():
            (wanted,), state = run([items, mask], state)
        np.testing.assert_allclose(found["output"], wanted, rtol=1e-5, atol=1e-5)


def test_raw_rows_of_every_setting_give_the_answers_of_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    forecaster = StreamingForecaster(
        StreamingForecasterConfig(num_series=2, horizon_steps=3, width=16, num_heads=2, decay="learned")
    )
    forecaster.preprocessing = LEARNED
    values = rng.standard_normal((30, 2)) * LEARNED["deviation"] + LEARNED["mean"]
    rows = np.column_stack([values, 1.5e9 + 3600.0 * np.arange(30)])
    policy = {"state_size": 3, "action_size": 2, "width": 16, "num_layers": 1, "max_steps": 64}
    classes = {"num_channels": 3, "num_classes": 4, "length": 30, "width": 16, "num_heads": 2}
    for model, given in (
        (forecaster, rows),
        (Classifier(ClassifierConfig(**classes, embedding="causal", head="flattened")), rows),
        (DecisionModel(DecisionModelConfig(**policy)), rng.standard_normal((30, 4))),
        (DecisionModel(DecisionModelConfig(**policy, actions="discrete")), rng.standard_normal((30, 4))),
    ):
        found = export_stream(model.eval(), tmp_path, to="onnx", check=given)
        assert found.files == ["model.onnx", "manifest.json"]
        assert found.largest_difference is not None
        assert found.largest_difference < 1e-5
    with pytest.raises(ConfigError, match="int8 is for c and wasm"):
        export_stream(forecaster, tmp_path, to="onnx", weights="int8")


def test_times_of_long_streams_keep_their_digits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = EventModelConfig(num_marks=3, width=16, num_heads=2, encoding="times")
    times = np.cumsum(1.0 + np.random.default_rng(0).random(40)) * 1e6
    export_stream(
        EventModel(config).eval(), tmp_path, to="onnx", check=np.column_stack([times, times % 3 // 1])
    )


def test_every_operation_of_a_number_has_its_nodes() -> None:
    def run(given: list[Tensor], held: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return [given[0] + held[0]], held

    graph = _Graph(record(run, [torch.zeros(1, 2)], [torch.zeros(1, 2)]), 1e9)
    for dtype in (torch.float32, torch.float64):
        graph._dtypes |= dict.fromkeys("abc", dtype)
        for code in CODES:
            assert graph.apply(code, list("abc"), [dtype] * 3, dtype, (0.0, 1.0)), code


def test_a_refused_item_has_a_code_and_leaves_its_stream_as_it_was(tmp_path: Path) -> None:
    model = EventModel(EventModelConfig(num_marks=3, width=16, num_heads=2)).eval()
    export_stream(model, tmp_path, to="onnx")
    stream = OnnxStream(tmp_path / "model.onnx", count=4)
    assert stream.manifest == json.loads((tmp_path / "manifest.json").read_text())
    stream.step({"time": np.full(4, 5.0), "mark": np.arange(4) % 3})
    before = stream.state
    codes, _ = stream.step({"time": np.array([6.0, 5.0, np.nan, 6.0]), "mark": np.array([0, 1, 2, 3])})
    assert codes.tolist() == [0, 5, 1, 1]
    for name, part in stream.state.items():
        np.testing.assert_array_equal(part[1:], before[name][1:])
    assert stream.state["past.num_events"].tolist() == [2, 1, 1, 1]
