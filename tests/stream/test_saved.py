import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from aaren.classification.model import Classifier, ClassifierConfig
from aaren.errors import ConfigError, DataError, StateError, UnwritableError
from aaren.events.distribution import Events
from aaren.events.model import EventModel, EventModelConfig
from aaren.files.checksums import read_files, write_files
from aaren.forecasting.model import Forecaster, ForecasterConfig
from aaren.forecasting.references import (
    LinearForecaster,
    ReferenceConfig,
    RepeatLast,
    SeasonalNaive,
    SeasonalNaiveConfig,
)
from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig
from aaren.nn.blocks import state_to_bytes
from aaren.rl.model import DecisionModel, DecisionModelConfig, Steps
from aaren.stream.pool import StreamPool
from aaren.stream.saved import load_model, save_model

SIZES = {"num_series": 2, "past_steps": 8, "horizon_steps": 5}
NARROW = {"width": 8, "num_heads": 2, "ff_width": 16}
MODELS = {
    "forecaster": lambda: Forecaster(ForecasterConfig(**SIZES, **NARROW, label_steps=4)),
    "without a decoder": lambda: Forecaster(
        ForecasterConfig(**SIZES, **NARROW, label_steps=4, cross_attention="none")
    ).double(),
    "linear": lambda: LinearForecaster(ReferenceConfig(**SIZES)),
    "last": lambda: RepeatLast(ReferenceConfig(**SIZES)),
    "seasonal": lambda: SeasonalNaive(SeasonalNaiveConfig(**SIZES, season_steps=3)),
}


@pytest.mark.parametrize("name", MODELS)
def test_loading_a_saved_model_gives_the_same_outputs(
    name: str, tmp_path: Path, rng: torch.Generator
) -> None:
    model = MODELS[name]().eval()
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    given = [torch.randn(3, steps, size, generator=rng).to(dtype) for steps, size in ((8, 2), (8, 4), (5, 4))]
    before = torch.get_rng_state()
    again = load_model(save_model(model, tmp_path / "model"))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(again(*given), model(*given))
    assert again.config == model.config
    assert not again.training
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "checksums.json",
        "config.json",
        "model.safetensors",
    ]


def test_a_streaming_model_too(tmp_path: Path, rng: torch.Generator) -> None:
    model = StreamingForecaster(
        StreamingForecasterConfig(num_series=2, horizon_steps=3, decay="learned", **NARROW)
    ).eval()
    again = load_model(save_model(model, tmp_path))
    rows, marks = torch.randn(1, 9, 2, generator=rng), torch.randn(1, 9, 4, generator=rng)
    assert torch.equal(again(rows, marks)[0], model(rows, marks)[0])
    assert again.fingerprint() == model.fingerprint()


@pytest.mark.parametrize("engine", ["torch", "native"])
@pytest.mark.parametrize("unit", [1.0, 1e-4])
def test_the_stream_of_a_loaded_run_takes_raw_rows(
    unit: float, engine: str, tmp_path: Path, rng: torch.Generator
) -> None:
    config = StreamingForecasterConfig(num_series=2, horizon_steps=3, **NARROW)
    model = StreamingForecaster(config).eval()
    mean, deviation = unit * np.array([50.0, -3.0]), unit * np.array([7.0, 0.1])
    model.preprocessing = {"columns": ["a", "b"], "mean": mean.tolist(), "deviation": deviation.tolist()}
    again = load_model(save_model(model, tmp_path / "model"))
    model.preprocessing = None
    raw, scaled = again.stream(engine=engine), model.stream(engine="torch")
    for number in range(8):
        row = torch.randn(2, generator=rng).double().numpy()
        date = np.datetime64("2026-01-31T07:00") + np.timedelta64(number, "h")
        found, wanted = raw.push(row * deviation + mean, date=date), scaled.push(row, date=date)
        np.testing.assert_allclose((found.numpy() - mean) / deviation, wanted, atol=1e-5)
    kept = raw.to_bytes()
    with pytest.raises(DataError, match="too far from the training data"):
        raw.push([0.0, 1e17], date=date)
    assert raw.to_bytes() == kept
    before = state_to_bytes(raw.state)
    raw.push([float("nan"), 0.0], date=date, mask=False)
    assert state_to_bytes(raw.state) == before


def test_small_units_are_normalised_like_others(rng: torch.Generator) -> None:
    model = StreamingForecaster(
        StreamingForecasterConfig(num_series=1, horizon_steps=3, num_marks=0, **NARROW)
    ).eval()
    rows = torch.randn(1, 60, 1, generator=rng)
    usual, small = (model(unit * rows)[0][:, 5:] / unit for unit in (1.0, 1e-4))  # once there is a variance
    torch.testing.assert_close(small, usual, rtol=0.0, atol=0.05)  # of a standard deviation; was 35
    assert model(torch.zeros(1, 5, 1))[0].isfinite().all()


def test_a_folded_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model = StreamingForecaster(StreamingForecasterConfig(num_series=2, decay="learned", **NARROW))
    save_model(model, tmp_path / "good")
    before = {path.name: path.read_bytes() for path in (tmp_path / "good").iterdir()}
    for folder in ("good", "new"):
        with pytest.raises(
            ConfigError, match=r"StreamingForecaster is folded.*Save the model that was folded"
        ):
            save_model(model.stream().model, tmp_path / folder)
    assert {path.name: path.read_bytes() for path in (tmp_path / "good").iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_a_summary_that_is_folded_is_found_too(tmp_path: Path) -> None:
    model = Forecaster(ForecasterConfig(**SIZES, **NARROW, label_steps=4, cross_attention="aaren"))
    with pytest.raises(ConfigError, match="is folded"):
        save_model(model.fold(), tmp_path)


def streaming() -> StreamingForecaster:
    config = StreamingForecasterConfig(num_series=2, horizon_steps=3, **NARROW)
    return StreamingForecaster(config).eval()


def test_tied_weights_come_back_as_equal_ones(tmp_path: Path, rng: torch.Generator) -> None:
    model = streaming()
    first, second = model.encoder.layers
    second.mixer.v_proj.weight = first.mixer.v_proj.weight
    second.feed_forward = first.feed_forward
    rows, marks = torch.randn(1, 9, 2, generator=rng), torch.randn(1, 9, 4, generator=rng)
    again = load_model(save_model(model, tmp_path))
    assert torch.equal(again(rows, marks)[0], model(rows, marks)[0])
    assert again.fingerprint() == model.fingerprint() == model.fold().fingerprint()
    model.encoder.layers[1] = model.encoder.layers[0]
    again = load_model(save_model(model, tmp_path))
    assert torch.equal(again(rows, marks)[0], model(rows, marks)[0])
    assert again.fingerprint() == model.fingerprint() == model.fold().fingerprint()


def all_models() -> dict[str, tuple[nn.Module, tuple[object, ...]]]:
    sequence = torch.randn(2, 8, 3)
    steps = Steps(torch.rand(2, 4), torch.randn(2, 4, 3), torch.zeros(2, 4, 2), torch.arange(4).expand(2, 4))
    classes = {"num_channels": 3, "num_classes": 4, "length": 8}
    return {
        "forecaster": (
            MODELS["forecaster"](),
            (torch.randn(2, 8, 2), torch.randn(2, 8, 4), torch.randn(2, 5, 4)),
        ),
        "streaming": (streaming(), (torch.randn(2, 8, 2), torch.randn(2, 8, 4))),
        "classifier": (Classifier(ClassifierConfig(**classes, **NARROW)), (sequence,)),
        "causal": (Classifier(ClassifierConfig(**classes, **NARROW, embedding="causal")), (sequence,)),
        "events": (
            EventModel(EventModelConfig(num_marks=3, width=8, num_heads=2)),
            (Events(torch.rand(2, 5), torch.zeros(2, 5, dtype=torch.int64)),),
        ),
        "decision": (
            DecisionModel(DecisionModelConfig(state_size=3, action_size=2, width=8, num_heads=2)),
            (steps,),
        ),
    }


def numbers(outputs: object) -> list[torch.Tensor]:
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    return [first] if isinstance(first, torch.Tensor) else [first.median(), first.mark_probabilities]


@pytest.mark.parametrize("name", all_models())
@pytest.mark.parametrize("assign", [False, True])
def test_weights_fill_a_model_that_was_built_without_memory(name: str, assign: bool) -> None:
    model, given = all_models()[name]
    with torch.device("meta"):
        empty = type(model)(model.config)
    if not assign:
        empty = empty.to_empty(device="cpu")
        for weight in [*empty.parameters(), *empty.buffers()]:
            weight.data.fill_(torch.nan if weight.is_floating_point() else 0)
    empty.load_state_dict(model.state_dict(), assign=assign)
    with torch.no_grad():
        expected, found = (numbers(each.eval()(*given)) for each in (model, empty))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


class Adapter(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * self.base(x)


def old_weight_norm(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(layer)


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda _module, _inputs, output: 2.0 * output)
    return layer


CHANGES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "adapter": Adapter,
    "old weight_norm": old_weight_norm,
    "new weight_norm": nn.utils.parametrizations.weight_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "hooked": hooked,
    "compiled": lambda layer: torch.compile(layer, backend="eager"),
    "wider": lambda layer: nn.Linear(layer.in_features, layer.out_features + 1),
    "without bias": lambda layer: nn.Linear(layer.in_features, layer.out_features, bias=False),
    "without numbers": lambda layer: layer.to("meta"),
}


@pytest.mark.parametrize("place", ["head", "encoder.layers.0.mixer.k_proj"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_could_not_be_loaded_is_refused_before_anything_is_written(
    change: str, place: str, tmp_path: Path
) -> None:
    model = streaming()
    save_model(model, tmp_path / "good")
    before = {path.name: path.read_bytes() for path in (tmp_path / "good").iterdir()}
    model.set_submodule(place, CHANGES[change](model.get_submodule(place)))
    for folder in ("good", "new"):
        with pytest.raises(ConfigError, match=r"not come back when loaded|could not be loaded"):
            save_model(model, tmp_path / folder)
    assert {path.name: path.read_bytes() for path in (tmp_path / "good").iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_what_was_made_permanent_can_be_saved(tmp_path: Path, rng: torch.Generator) -> None:
    model = streaming()
    prune.l1_unstructured(model.head, "weight", 0.5)
    prune.remove(model.head, "weight")
    rows, marks = torch.randn(1, 9, 2, generator=rng), torch.randn(1, 9, 4, generator=rng)
    assert torch.equal(load_model(save_model(model, tmp_path))(rows, marks)[0], model(rows, marks)[0])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_model(MODELS["linear"](), tmp_path)


def rewrite(folder: Path, **changes: object) -> None:
    """Change a description as a program would that writes such folders itself, checksums included."""
    files = read_files(folder)
    files["config.json"] = json.dumps({**json.loads(files["config.json"]), **changes}).encode()
    write_files(folder, files)


def test_the_description_says_what_it_is(saved: Path) -> None:
    described = json.loads((saved / "config.json").read_text())
    assert described["class"] == "LinearForecaster"
    assert described["config"] == SIZES
    assert described["format_version"] == 2
    assert described["aaren_version"]


def test_an_unknown_class_is_refused_on_both_ways(saved: Path, tmp_path: Path) -> None:
    rewrite(saved, **{"class": "LinearForecster"})
    with pytest.raises(ConfigError, match="did you mean 'LinearForecaster'"):
        load_model(saved)
    with pytest.raises(ConfigError, match="unknown model class 'Linear'"):
        save_model(nn.Linear(1, 1), tmp_path / "other")


def test_another_format_asks_for_an_upgrade(saved: Path) -> None:
    for version in (1, 3, None):
        rewrite(saved, format_version=version)
        with pytest.raises(DataError, match=f"format version {version}"):
            load_model(saved)


def test_every_fault_of_a_config_is_named(saved: Path) -> None:
    rewrite(saved, config={"horizon_step": 5})
    with pytest.raises(ConfigError, match=r"(?s)unknown key 'horizon_step'.*num_series is missing"):
        load_model(saved)
    rewrite(saved, config=3)
    with pytest.raises(DataError, match="config"):
        load_model(saved)


@pytest.mark.parametrize(
    "change", [{"num_layers": 100_000}, {"width": 1 << 20}, {"num_layers": 1}, {"horizon_steps": 10**15}]
)
def test_sizes_of_a_config_are_compared_with_the_weights_before_anything_is_built(
    change: dict[str, int], tmp_path: Path
) -> None:
    folder = save_model(streaming(), tmp_path)
    described = json.loads((folder / "config.json").read_text())
    rewrite(folder, config={**described["config"], **change})
    begun = time.perf_counter()
    with pytest.raises(DataError):
        load_model(folder)
    assert time.perf_counter() - begun < 5.0


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    model = MODELS["linear"]()
    model.preprocessing = {"mean": [50.0, -3.0], "deviation": [7.0, 0.1], "columns": ["a", "b"]}
    folder = save_model(model, tmp_path)
    drawn = np.random.default_rng(0)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for place in drawn.integers(8 * len(content), size=40).tolist():
            damaged = bytearray(content)
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            with pytest.raises(DataError):
                load_model(folder)
        for part in (b"", b"[]", b"{}", b'{"classes": 1}', content[: len(content) // 2], b"[" * 100_000):
            path.write_bytes(part)
            with pytest.raises(DataError):
                load_model(folder)
        path.unlink()
        with pytest.raises(DataError):
            load_model(folder)
        path.write_bytes(content)
    load_model(folder)


def test_what_an_earlier_save_left_behind_is_ignored(saved: Path) -> None:
    (saved / "state.bin").write_bytes(b"of another model")
    load_model(saved)
    with pytest.raises(DataError, match=r"state\.bin"):
        read_files(saved, "state.bin")


def test_a_listed_file_lies_in_the_folder(saved: Path) -> None:
    (saved.parent / "outside").write_text("secret")
    write_files(saved, {}, others=["../outside"])
    with pytest.raises(DataError, match="damaged or was edited"):
        read_files(saved)


def test_other_scales_are_another_stream(tmp_path: Path) -> None:
    model = streaming()
    model.preprocessing = {"columns": ["a", "b"], "mean": [50.0, -3.0], "deviation": [7.0, 0.1]}
    with StreamPool(model, tmp_path / "states.db") as pool:
        pool.push(["a"], [[50.0, -3.0]], marks=[[0.0] * 4])
    model.preprocessing = {**model.preprocessing, "mean": [51.0, -3.0]}
    with pytest.raises(StateError, match="fingerprint"):
        StreamPool(model, tmp_path / "states.db")


@pytest.mark.parametrize("folder", ["/dev/null", "/dev/null/model", "a\0b"])
def test_a_folder_that_cannot_be_made_is_refused(folder: str) -> None:
    with pytest.raises(UnwritableError, match="cannot save into the folder"):
        save_model(StreamingForecaster(StreamingForecasterConfig(num_series=1, width=8, num_heads=2)), folder)
