"""Laws of exported streams: whatever a model is made of, torch, the native engine and what is exported agree.

Models are drawn; every one is stepped through hundreds of random items with masks, resets and states that are
saved, restored and passed between the engines in mid-stream.
"""

import atexit
import ctypes
import functools
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hatch_build
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from aaren.classification import Classifier, ClassifierConfig, FeatureClassifier, FeatureClassifierConfig
from aaren.errors import StateError
from aaren.events import EventModel, EventModelConfig
from aaren.export.artifact import Artifact, OnnxStream
from aaren.export.compile import NativeStep
from aaren.export.program import BAD_STATE, OK
from aaren.export.whole import WholeStep
from aaren.export.write import Exported, export_stream
from aaren.forecasting import StreamingForecaster, StreamingForecasterConfig
from aaren.forecasting.lagged import LagForecaster, LagForecasterConfig
from aaren.nn import Encoder, EncoderConfig
from aaren.nn.aaren import GATES
from aaren.nn.blocks import Leaf, state_from_bytes, state_to_bytes
from aaren.nn.checks import largest
from aaren.nn.conv import Conv
from aaren.nn.state import EncoderState
from aaren.ops.cpu import library
from aaren.rl import DecisionModel, DecisionModelConfig

pytestmark = pytest.mark.skipif(
    not library.is_available() or not shutil.which("gcc"), reason="no compiled library, or no gcc"
)
STEPS = 300
TOLERANCE = 1e-5  # of the largest number of an answer, or of 1
MEAN, DEVIATION = 1e-3, 1e-4  # of raw rows, which are far from 0 and of another unit
Row = Callable[[np.random.Generator, int], list[Tensor]]  # the inputs of one step, (1, ...), from its number


@dataclass
class Case:
    """A drawn model's step, and what may come in."""

    step: WholeStep
    row: Row

    def whole_step(self) -> WholeStep:
        """Return the step: this can be exported."""
        return self.step


class OwnModel(nn.Module):
    """An encoder with an embedding and a head, as a user writes it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.embedding, self.head = nn.Linear(3, config.width), nn.Linear(config.width, 2)
        self.encoder = Encoder(config)

    def fold(self) -> "OwnModel":
        """Return itself with a folded encoder."""
        self.encoder = self.encoder.fold()
        return self

    def fingerprint(self) -> str:
        """Return the name of the encoder's weights."""
        return self.encoder.fingerprint()

    def init_state(self, batch_size: int) -> EncoderState:
        """Return the encoder's."""
        return self.encoder.init_state(batch_size)

    def step(self, item: Tensor, state: EncoderState, **extras: Tensor) -> tuple[Tensor, EncoderState]:
        """Take in one item."""
        found, state = self.encoder.step(self.embedding(item), state, **extras)
        return self.head(found), state


def numbers(*shape: int, unit: float = 1.0, mean: float = 0.0, dtype: torch.dtype = torch.float64) -> Row:
    """Return random numbers of one input."""
    return lambda rng, _: [torch.from_numpy(mean + unit * rng.standard_normal((1, *shape))).to(dtype)]


def truth(rng: np.random.Generator, number: int) -> list[Tensor]:
    """Return a mask that leaves out one item in five."""
    del number
    return [torch.tensor([rng.random() > 0.2])]


def moment(rng: np.random.Generator, number: int) -> list[Tensor]:
    """Return a time that is later than all before it, but not evenly so."""
    return [torch.tensor([number + 1 + 0.9 * rng.random()], dtype=torch.float64)]


def join(*rows: Row) -> Row:
    """Return the inputs of several, end to end."""
    return lambda rng, number: [part for row in rows for part in row(rng, number)]


def masked(model: Any, row: Row, names: list[str]) -> Case:  # Any: one of the models, by their verbs
    """Return the step of a model as its sessions take it: an item, then what `step` knows by name."""
    model = model.fold()

    def run(inputs: list[Tensor], state: Any) -> tuple[list[Tensor], Any]:
        found, state = model.step(inputs[0], state, **dict(zip(names, inputs[1:], strict=True)))
        return [found], state

    examples = row(np.random.default_rng(0), 0)
    return Case(
        WholeStep(
            inputs=dict(zip(["item", *names], examples, strict=True)),
            outputs=("output",),
            run=run,
            state=model.init_state(1),
            largest=largest(torch.float32),
            fingerprint=model.fingerprint(),
        ),
        row,
    )


CONVS = st.none() | st.builds(
    Conv,
    kernel=st.integers(2, 5),
    dilations=st.sampled_from([(1,), (1, 2), (3,)]),
    where=st.sampled_from(["block", "stem"]),
    channels=st.sampled_from([None, 3]),
)
ACTIVATIONS = st.sampled_from(["gelu", "relu", "silu"])
NORMS = st.sampled_from(["post", "pre"])
DECAYS = st.sampled_from([None, "learned"])
TRUTHS = st.booleans()


@st.composite
def sizes(draw: st.DrawFn, *, even: bool = False) -> dict[str, int]:
    """Draw heads, widths and layers."""
    heads = draw(st.integers(1, 3))
    width = heads * draw(st.sampled_from([4, 8, 10] if even else [3, 4, 8, 17]))
    feed = draw(st.sampled_from([5, 16, 40]))
    return {"num_heads": heads, "width": width, "ff_width": feed, "num_layers": draw(st.integers(1, 3))}


@st.composite
def own_models(draw: st.DrawFn) -> Case:
    """Draw an encoder with an embedding and a head of the user's."""
    position = draw(st.sampled_from(["none", "sinusoid", "learned"]))
    config = EncoderConfig(
        **draw(sizes(even=position == "sinusoid")),
        norm=draw(NORMS),
        final_norm=draw(TRUTHS),
        activation=draw(ACTIVATIONS),
        decay=draw(DECAYS),
        gates=draw(st.sampled_from(GATES)),
        conv=draw(CONVS),
        qkv_bias=draw(TRUTHS),
        position=position,
        max_positions=STEPS + 8,
    )
    return masked(OwnModel(config).eval(), join(numbers(3, dtype=torch.float32), truth), ["mask"])


@st.composite
def forecasters(draw: st.DrawFn) -> Case:
    """Draw a streaming forecaster: of raw rows with dates, or of scaled ones with masks."""
    series, marks = draw(st.integers(1, 3)), draw(st.sampled_from([0, 3, 4]))
    config = StreamingForecasterConfig(
        **draw(sizes()),
        num_series=series,
        num_marks=marks,
        horizon_steps=draw(st.integers(1, 5)),
        half_life_steps=draw(st.sampled_from([4.0, 96.0, math.inf])),
        activation=draw(ACTIVATIONS),
        decay=draw(DECAYS),
    )
    model = StreamingForecaster(config).eval()
    if draw(TRUTHS):
        row, names = join(numbers(series, dtype=torch.float32), truth), ["mask"]
        if marks:
            row, names = join(row, numbers(marks, dtype=torch.float32)), [*names, "marks"]
        return masked(model, row, names)
    model.preprocessing = {
        "columns": ["x"] * series,
        "mean": [MEAN] * series,
        "deviation": [DEVIATION] * series,
    }
    row = numbers(series, unit=DEVIATION, mean=MEAN)
    if marks == 4:
        row = join(row, lambda _, number: [torch.tensor([1.5e9 + 3600.0 * number], dtype=torch.float64)])
    elif marks:
        row = join(row, numbers(marks, dtype=torch.float32))
    return Case(model.whole_step(), row)


@st.composite
def lagged(draw: st.DrawFn) -> Case:
    """Draw a lagged forecaster."""
    series, lags = draw(st.integers(1, 3)), draw(st.integers(6, 12))
    config = LagForecasterConfig(
        num_series=series,
        horizon_steps=draw(st.integers(1, 6)),
        lag_steps=lags,
        joint_steps=draw(st.sampled_from([0, 3])),
        is_shared=draw(TRUTHS),
        clock=draw(st.sampled_from(["none", "week", "weekday", "month", "quarter"])),
    )
    model = LagForecaster(config).eval()
    with torch.no_grad():
        for part in (model.weight, model.profile, model.joint):
            if part is not None:
                part.normal_(std=0.3)
        model.quantiles.copy_(torch.randn_like(model.quantiles).sort(-1).values)
        model.first_log_scale.normal_(std=0.1)
        model.mean.normal_()
        model.deviation.uniform_(0.5, 2.0)
    row = numbers(series)
    if draw(TRUTHS):
        return masked(model, join(row, truth), ["mask"])
    if config.clock != "none":
        row = join(row, lambda _, number: [torch.tensor([1.5e9 + 3600.0 * number], dtype=torch.float64)])
    return Case(model.whole_step(), row)


@st.composite
def networks(draw: st.DrawFn) -> Case:
    """Draw a causal classifier."""
    channels = draw(st.integers(1, 3))
    config = ClassifierConfig(
        **draw(sizes(even=True)),
        num_channels=channels,
        num_classes=draw(st.integers(2, 4)),
        length=STEPS + 8,
        embedding="causal",
        head=draw(st.sampled_from(["pooled", "flattened"])),
    )
    model = Classifier(config).eval()
    if draw(TRUTHS):
        return masked(model, join(numbers(channels, dtype=torch.float32), truth), ["mask"])
    model.preprocessing = {"mean": [MEAN] * channels, "deviation": [DEVIATION] * channels}
    return Case(model.whole_step(), numbers(channels, unit=DEVIATION, mean=MEAN))


@st.composite
def features(draw: st.DrawFn) -> Case:
    """Draw the classifier of convolution features, with thresholds between units as fitted ones have them."""
    channels, spans = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    dilations = draw(st.sampled_from([(1,), (1, 3), (2, 5)]))
    config = FeatureClassifierConfig(
        num_channels=channels,
        num_classes=draw(st.integers(2, 4)),
        length=40,
        dilations=dilations,
        num_thresholds=(draw(st.integers(1, 2)),) * len(dilations),
        num_levels=draw(st.integers(0, 3)),
        has_roots=draw(TRUTHS),
        has_changes=draw(TRUTHS),
        num_spans=spans,
        has_places=draw(TRUTHS),
    )
    model = FeatureClassifier(config).eval()
    with torch.no_grad():
        model.weight.normal_(std=0.1)
        model.bias.normal_()
        if config.has_places:
            model.places.copy_(torch.randint(-(1 << 20), 1 << 20, model.places.shape))
            model.place_unit.fill_(1e-10)
        for part in (model.thresholds, model.levels):
            part.copy_(torch.randint(-8000, 8000, part.shape).sort().values + 0.5)
        model.channels.copy_(torch.rand_like(model.channels) < 0.7)
        model.span_ends.copy_(10 * torch.arange(spans) + 5)
    if draw(TRUTHS):
        return masked(model, join(numbers(channels, dtype=torch.float32), truth), ["mask"])
    return Case(model.whole_step(), numbers(channels))


@st.composite
def events(draw: st.DrawFn) -> Case:
    """Draw an event model, of one kind of events or several."""
    kinds = draw(st.integers(1, 4))
    config = EventModelConfig(
        **draw(sizes(even=True)),
        num_marks=kinds,
        num_components=draw(st.integers(1, 4)),
        activation=draw(ACTIVATIONS),
        encoding=draw(st.sampled_from(["gaps", "log-gaps", "times"])),
        time_scale=draw(st.sampled_from([1.0, 12.5])),
        time_decay=draw(DECAYS),
        conv=draw(CONVS),
        periods=draw(st.sampled_from([(), (24.0,), (24.0, 168.0)])),
    )
    row = join(moment, lambda rng, _: [torch.tensor([rng.integers(kinds)])])
    return Case(EventModel(config).eval().whole_step(), row)


@st.composite
def policies(draw: st.DrawFn) -> Case:
    """Draw a policy, of vectors or of discrete actions."""
    is_fused = draw(TRUTHS)
    config = DecisionModelConfig(
        **draw(sizes()),
        state_size=3,
        action_size=2,
        actions=draw(st.sampled_from(["box", "discrete"])),
        is_fused=is_fused,
        sees_actions=not is_fused or draw(TRUTHS),
        counts_rewards=draw(TRUTHS),
        norm=draw(NORMS),
        max_steps=64,
        context_steps=7,
        target_return=5.0,
    )
    model = DecisionModel(config).eval()
    model.set_scales(state_mean=torch.tensor([1.0, 2.0, 3.0]), state_std=torch.tensor([0.5, 1.0, 2.0]))
    session = model.stream(engine="torch", context=draw(st.sampled_from(["carried", "reset"])))
    return Case(model.whole_step(session), join(numbers(3), numbers()))


KINDS = {
    "own": own_models(),
    "streaming": forecasters(),
    "lagged": lagged(),
    "network": networks(),
    "features": features(),
    "events": events(),
    "policy": policies(),
}
FEW = {"own": 4, "streaming": 2}  # examples in the normal suite; one of each other kind, besides the simplest
MANY = 20
LAW = settings(
    deadline=None,
    database=None,
    phases=[Phase.generate],  # what fails is small as it is, and every further attempt compiles
    suppress_health_check=list(HealthCheck),
)


class TorchRunner:
    """The model itself."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.reset()

    def reset(self) -> None:
        """Forget all items."""
        self.state = self.case.step.state

    def step(self, inputs: list[Tensor]) -> tuple[int, list[Tensor]]:
        """Take in an item; the answers lack the stream's axis."""
        with torch.no_grad():
            found, self.state = self.case.step.run([part.clone() for part in inputs], self.state)
        return OK, [part[0] for part in found]


class NativeRunner:
    """The library inside Python."""

    def __init__(self, case: Case, step: NativeStep) -> None:
        self.case, self.native, self.buffers = case, step, step.buffers(1)
        self.reset()

    def reset(self) -> None:
        """Forget all items."""
        self.state = self.case.step.state

    @property
    def state(self) -> Any:
        """The state, as torch has it."""
        return self.native.layout.unpack(self.words)

    @state.setter
    def state(self, state: Any) -> None:
        self.words = self.native.layout.pack(state)

    @property
    def bytes(self) -> bytes:
        """The state as it lies in memory."""
        return self.words.tobytes()

    def step(self, inputs: list[Tensor]) -> tuple[int, list[Tensor]]:
        """Take in an item."""
        for place, part in zip(self.buffers.inputs, inputs, strict=True):
            place.copy_(part)
        code = self.native.run(self.words, self.buffers)
        return code, [part[0].clone() for part in self.buffers.outputs]


class CRunner:
    """The exported sources, compiled."""

    def __init__(self, exported: Exported) -> None:
        self.like, self.fingerprint = exported.step.layout.like, exported.manifest["fingerprint"]
        self.artifact = Artifact(compile_c(exported.folder), exported.step.program)
        self.reset, self.step = self.artifact.reset, self.artifact.step

    @property
    def state(self) -> Any:
        """The state, as torch has it."""
        return state_from_bytes(self.artifact.block, like=self.like, fingerprint=self.fingerprint)

    @state.setter
    def state(self, state: Any) -> None:
        self.artifact.block = state_to_bytes(state, fingerprint=self.fingerprint)

    @property
    def bytes(self) -> bytes:
        """The state as it lies in memory."""
        return self.artifact.block


class OnnxRunner:
    """The exported graph in onnxruntime."""

    def __init__(self, case: Case, path: Path) -> None:
        self.case, self.stream = case, OnnxStream(path)
        self.reset = self.stream.reset

    @property
    def state(self) -> Any:
        """The state, as torch has it."""
        step = self.case.step
        return state_from_bytes(self.stream.blocks, like=step.state, fingerprint=step.fingerprint)

    @state.setter
    def state(self, state: Any) -> None:
        self.stream.blocks = state_to_bytes(state, fingerprint=self.case.step.fingerprint)

    @property
    def bytes(self) -> bytes:
        """The state as its block."""
        return self.stream.blocks

    def step(self, inputs: list[Tensor]) -> tuple[int, list[Tensor]]:
        """Take in an item."""
        named = zip(self.case.step.inputs, inputs, strict=True)
        code, found = self.stream.step({name: part.contiguous().numpy() for name, part in named})
        return int(code[0]), [torch.tensor(found[name][0]) for name in self.case.step.outputs]


@functools.cache
def runtime_object() -> Path:
    """Compile the runtime once: it is the same in every export."""
    place = tempfile.TemporaryDirectory(prefix="aaren-laws-")
    atexit.register(place.cleanup)
    target = Path(place.name) / "runtime.o"
    source = str(hatch_build.RUNTIME / "runtime.c")
    subprocess.run(["gcc", "-std=c99", "-O1", "-fPIC", "-c", source, "-o", str(target)], check=True)
    return target


def compile_c(folder: Path) -> Path:
    """Compile an exported model into a library."""
    sources = [str(folder / name) for name in ("aaren_model.c", "aaren_weights.c")]
    target = folder / "model.so"
    flags = ["-std=c99", "-O1", "-fPIC", "-shared"]
    subprocess.run(["gcc", *flags, *sources, str(runtime_object()), "-o", str(target), "-lm"], check=True)
    return target


def require_close(found: list[Tensor], wanted: list[Tensor], what: object) -> None:
    """Raise where answers differ by more than the tolerance."""
    for have, want in zip(found, wanted, strict=True):
        scale = max(1.0, float(want.abs().max())) if want.numel() else 1.0
        assert torch.isfinite(want.double()).all()
        assert float((have.double() - want.double()).abs().max()) <= TOLERANCE * scale, what


def refuse_bad_numbers(case: Case, runners: list[Any], inputs: list[Tensor]) -> None:
    """Put what must be refused into every input: a code, and the state as it was, to the last bit."""
    for place, part in enumerate(inputs):
        if part.dtype == torch.bool:
            continue
        for bad in [math.nan, math.inf, -math.inf] if part.is_floating_point() else [-1, 10**6, -(2**62)]:
            given = [tensor.clone() for tensor in inputs]
            given[place].view(-1)[-1] = bad
            for runner in runners:
                before = runner.bytes
                assert runner.step(given)[0] != OK, (runner, list(case.step.inputs)[place], bad)
                assert runner.bytes == before


def drive(case: Case, others: list[Any], seed: int) -> None:
    """Step torch and the others side by side, with resets, restored states and states of each other."""
    rng = np.random.default_rng(seed)
    runners = [TorchRunner(case), *others]
    saved = [runner.state for runner in runners]
    for number in range(STEPS):
        inputs = case.row(rng, number)
        if number % 60 == 30:
            refuse_bad_numbers(case, others, inputs)
        (_, wanted), *answers = [runner.step(inputs) for runner in runners]
        for runner, (code, found) in zip(others, answers, strict=True):
            assert code == OK, (type(runner).__name__, number)
            require_close(found, wanted, (type(runner).__name__, number))
        event = rng.random()
        if event < 0.01:
            for runner in runners:
                runner.reset()
        elif event < 0.04:
            saved = [runner.state for runner in runners]
        elif event < 0.07:
            for runner, state in zip(runners, saved, strict=True):
                runner.state = state
        elif event < 0.15:  # everyone goes on from where another one is
            states = [runner.state for runner in runners]
            for runner, state in zip(runners, [*states[1:], states[0]], strict=True):
                runner.state = state


def refuse_foreign_states(case: Case, runner: CRunner, seed: int) -> None:
    """Damage a state, and take one of another model: refused, by every function that reads one."""
    rng = np.random.default_rng(seed)
    artifact, inputs = runner.artifact, case.row(rng, STEPS)
    block = artifact.block
    foreign = state_to_bytes(runner.state, fingerprint="another model")
    strange = [foreign, block[:-1]]
    for _ in range(10):
        damaged = bytearray(block)
        damaged[rng.integers(len(block))] ^= 1 << int(rng.integers(8))
        strange.append(bytes(damaged))
    for content in strange:
        with pytest.raises(StateError, match="another model"):
            artifact.block = content
        with pytest.raises(StateError):
            state_from_bytes(content, like=runner.like, fingerprint=runner.fingerprint)
        assert artifact.block == block
    ctypes.memmove(artifact._start, foreign, len(foreign))
    assert artifact.step(inputs)[0] == BAD_STATE
    artifact.block = block
    assert artifact.step(inputs)[0] == OK


def check_laws(case: Case, seed: int, *, has_onnx: bool = False) -> None:
    """Export a drawn model and hold it to all of the laws."""
    with tempfile.TemporaryDirectory(prefix="aaren-laws-") as place:
        exported = export_stream(case, Path(place) / "c")
        others: list[Any] = [NativeRunner(case, exported.step), CRunner(exported)]
        if has_onnx:
            export_stream(case, Path(place) / "onnx", to="onnx")
            others.append(OnnxRunner(case, Path(place) / "onnx" / "model.onnx"))
        drive(case, others, seed)
        refuse_foreign_states(case, others[1], seed)


@pytest.mark.parametrize("kind", KINDS)
def test_native_and_c_agree_with_torch(kind: str) -> None:
    @given(KINDS[kind], st.integers(0, 2**16))
    @settings(LAW, max_examples=FEW.get(kind, 1) + 1, derandomize=True)
    def law(case: Case, seed: int) -> None:
        check_laws(case, seed)

    torch.manual_seed(0)
    law()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_many_models_agree_with_torch_in_onnx_too(kind: str) -> None:
    pytest.importorskip("onnxruntime")

    @given(KINDS[kind], st.integers(0, 2**16))
    @settings(LAW, max_examples=MANY)
    def law(case: Case, seed: int) -> None:
        check_laws(case, seed, has_onnx=True)

    law()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_sanitizers_and_strict_compilers_find_nothing(kind: str) -> None:
    flags = ["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

    @given(KINDS[kind], st.integers(0, 2**16), TRUTHS)
    @settings(LAW, max_examples=4, derandomize=True)
    def law(case: Case, seed: int, has_file: bool) -> None:
        with tempfile.TemporaryDirectory(prefix="aaren-laws-") as place:
            exported = export_stream(case, place, weights_file=has_file)
            sources = sorted(path.name for path in Path(place).glob("*.c"))
            subprocess.run(["gcc", *flags, *sources, "-o", "main", "-lm"], cwd=place, check=True)
            program, rng = exported.step.program, np.random.default_rng(seed)
            items = [case.row(rng, number) for number in range(60)]
            content = b"".join(struct_of(program.inputs, inputs) for inputs in items)
            done = subprocess.run(["./main"], input=content, capture_output=True, cwd=place, check=True)
            assert done.stderr == b""
            size, runner = struct_size(program.outputs), TorchRunner(case)
            for number, inputs in enumerate(items):
                block = bytearray(done.stdout[number * size : (number + 1) * size])
                found = [read_leaf(block, leaf) for leaf in program.outputs]
                require_close(found, runner.step(inputs)[1], number)

    torch.manual_seed(0)
    law()


def struct_size(leaves: list[Leaf]) -> int:
    """Return the size of a C struct of these members."""
    widest = max(leaf.dtype.itemsize for leaf in leaves)
    end = max(leaf.offset + leaf.count * leaf.dtype.itemsize for leaf in leaves)
    return end + -end % widest


def struct_of(leaves: list[Leaf], inputs: list[Tensor]) -> bytes:
    """Return inputs as a C struct."""
    block = bytearray(struct_size(leaves))
    for leaf, part in zip(leaves, inputs, strict=True):
        content = part.to(leaf.dtype).contiguous().numpy().tobytes()
        block[leaf.offset : leaf.offset + len(content)] = content
    return bytes(block)


def read_leaf(block: bytearray, leaf: Leaf) -> Tensor:
    """Return a member of a C struct."""
    found = torch.frombuffer(block, dtype=leaf.dtype, count=leaf.count, offset=leaf.offset)
    return found.view(leaf.shape)


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("node"), reason="no node")
@pytest.mark.parametrize("kind", KINDS)
def test_webassembly_goes_on_from_a_state_of_torch_and_gives_it_back(kind: str) -> None:
    pytest.importorskip("ziglang")
    script = """
    import { readFileSync } from "node:fs";
    import { load } from "./aaren_model.js";
    const { block, rows } = JSON.parse(readFileSync("given.json", "utf8"));
    const stream = await load();
    stream.state = Uint8Array.from(block);
    const plain = (found) => Object.values(found).map((part) => Array.from(part, Number));
    const answers = rows.map((row) => plain(stream.push(row)));
    const after = Array.from(stream.state);
    const damaged = stream.state;
    damaged[damaged.length - 1] ^= 1;
    let isRefused = false;
    try { stream.state = damaged; } catch { isRefused = true; }
    process.stdout.write(JSON.stringify({ answers, after, isRefused }));
    """

    @given(KINDS[kind], st.integers(0, 2**16))
    @settings(LAW, max_examples=2, derandomize=True)
    def law(case: Case, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with tempfile.TemporaryDirectory(prefix="aaren-laws-") as place:
            exported = export_stream(case, place, to="wasm")
            runner = TorchRunner(case)
            for number in range(STEPS // 2):
                runner.step(case.row(rng, number))
            block = state_to_bytes(
                runner.state, fingerprint=exported.manifest["fingerprint"], count=STEPS // 2
            )
            items = [case.row(rng, number) for number in range(STEPS // 2, STEPS)]
            rows = [
                {
                    name: [str(x) if part.dtype == torch.int64 else float(x) for x in part.view(-1).tolist()]
                    for name, part in zip(case.step.inputs, inputs, strict=True)
                }
                for inputs in items
            ]
            (Path(place) / "given.json").write_text(json.dumps({"block": list(block), "rows": rows}))
            (Path(place) / "run.mjs").write_text(script)
            done = subprocess.run(["node", "run.mjs"], cwd=place, capture_output=True, text=True, check=True)
            said = json.loads(done.stdout)
            for inputs, answer in zip(items, said["answers"], strict=True):
                _, wanted = runner.step(inputs)
                found = [torch.tensor(part, dtype=torch.float64) for part in answer]
                require_close(
                    [part.view(want.shape) for part, want in zip(found, wanted, strict=True)], wanted, seed
                )
            assert said["isRefused"]
            runner.state = state_from_bytes(
                bytes(said["after"]), like=runner.state, fingerprint=exported.manifest["fingerprint"]
            )
            native = NativeRunner(case, exported.step)
            native.state = runner.state
            more = case.row(rng, STEPS)
            require_close(native.step(more)[1], runner.step(more)[1], seed)

    torch.manual_seed(0)
    law()
