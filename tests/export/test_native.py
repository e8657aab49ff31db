"""The native engine: the answers and states of torch, bad items refused, what cannot be lowered named."""

import itertools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import hatch_build
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aaren.classification import Classifier, ClassifierConfig
from aaren.errors import DataError, ShapeError, StateError
from aaren.events import EventModel, EventModelConfig
from aaren.export import header, program
from aaren.export.compile import NativeStep, compile_step
from aaren.export.program import BAD_INDEX, BAD_INPUT, OK
from aaren.export.record import LoweringError
from aaren.forecasting import StreamingForecaster, StreamingForecasterConfig
from aaren.nn import Encoder, EncoderConfig
from aaren.nn.blocks import state_to_bytes
from aaren.nn.conv import Conv
from aaren.ops.cpu import library
from aaren.rl import DecisionModel, DecisionModelConfig
from aaren.stream.session import Session

pytestmark = pytest.mark.skipif(not library.is_available(), reason="no compiled library")
SMALL = {"width": 24, "num_heads": 3, "num_layers": 2, "dropout": 0.0}
CONFIGS = [
    {},
    {"norm": "pre", "final_norm": True, "activation": "relu"},
    {"decay": "learned", "qkv_bias": False},
    {"gates": "both", "decay": "learned"},
    {"conv": Conv(where="block"), "position": "sinusoid"},
    {"conv": Conv(where="stem"), "position": "learned", "activation": "silu"},
    {"mixer": "gru"},
    {"mixer": "lstm"},
    {"mixer": "wkv"},
    {"mixer": "linear"},
    {"mixer": "retnet"},
    {"mixer": "mingru", "norm": "pre"},
    {"num_layers": 1, "width": 17, "num_heads": 1, "ff_width": 5},
]


def lower_encoder(encoder: Encoder, *, has_mask: bool = False, weights: str = "float32") -> NativeStep:
    """Compile the step of an encoder."""

    def run(inputs: list[Tensor], state: tuple) -> tuple[list[Tensor], tuple]:
        output, state = encoder.step(inputs[0], state, mask=inputs[1] if has_mask else None)
        return [output], state

    examples = [torch.zeros(1, encoder.config.width)] + [torch.ones(1, dtype=torch.bool)] * has_mask
    return compile_step(run, examples, encoder.init_state(1), largest=1e17, weights=weights)


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_every_encoder_agrees_with_torch_under_masks_and_states_pass_both_ways(options: dict) -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(**SMALL | options)).eval().fold()
    step = lower_encoder(encoder, has_mask=True)
    count = 5
    buffers, state = step.buffers(count), encoder.init_state(count)
    words = step.layout.pack(state)
    with torch.no_grad():
        for number in range(40):
            item, mask = torch.randn(count, encoder.config.width), torch.rand(count) < 0.7
            for place, value in zip(buffers.inputs, (item, mask), strict=True):
                place.copy_(value)
            before = step.layout.unpack(words)
            assert step.run(words, buffers) == OK
            wanted, state = encoder.step(item, state, mask=mask)
            torch.testing.assert_close(buffers.outputs[0], wanted, rtol=1e-5, atol=1e-5)
            if number == 20:  # from here on each continues from what the other made
                other = step.layout.unpack(words)
                words = step.layout.pack(state)
                state = other
            else:
                for old, new in zip(_leaves(before), _leaves(step.layout.unpack(words)), strict=True):
                    assert torch.equal(old[~mask], new[~mask])


def _leaves(state: object) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    return [leaf for part in state for leaf in _leaves(part)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize(("width", "count"), [(24, 2), (24, 13), (63, 57), (48, 25)])
def test_a_stream_gets_the_same_bits_alone_and_beside_others(width: int, count: int, weights: str) -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(**SMALL | {"width": width})).eval().fold()
    step = lower_encoder(encoder, weights=weights)
    words, buffers = step.layout.pack(encoder.init_state(count)), step.buffers(count)
    alone, one = [step.layout.pack(encoder.init_state(1)) for _ in range(count)], step.buffers(1)
    for _ in range(5):
        items = torch.randn(count, encoder.config.width)
        buffers.inputs[0].copy_(items)
        assert step.run_many(words, buffers, threads=2) == OK
        for number, single in enumerate(alone):
            one.inputs[0].copy_(items[number : number + 1])
            assert step.run(single, one) == OK
            assert torch.equal(one.outputs[0][0], buffers.outputs[0][number])
            np.testing.assert_array_equal(single[0], words[number])


def compile_plain(function: Callable[[Tensor], Tensor], width: int, weights: str = "float32") -> NativeStep:
    """Compile a function of an item that has no memory; its state is how many items there were."""

    def run(inputs: list[Tensor], state: tuple[Tensor]) -> tuple[list[Tensor], tuple[Tensor]]:
        return [function(inputs[0])], (state[0] + 1.0,)

    return compile_step(run, [torch.zeros(1, width)], (torch.zeros(1),), largest=1e17, weights=weights)


@pytest.mark.parametrize("width", [7, 16, 40, 64])
@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize(
    ("name", "num_added"),
    [("before", 0), ("after", 1), ("twice", 1), ("shifted", 1), ("chain", 0), ("activated", 1)],
)
def test_a_linear_layer_adds_what_is_known_before_it(
    name: str, num_added: int, weights: str, width: int
) -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(width, width).eval(), nn.Linear(width, width).eval()
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "before": lambda x: x + first(x),
        "after": lambda x: first(x) + x.relu(),  # the other term does not exist yet when the layer runs
        "twice": lambda x: (y := first(x)) + y,
        "shifted": lambda x: first(x) + x[:, :1],  # of another shape
        "chain": lambda x: (y := x + first(x)) + second(y),
        "activated": lambda x: x + torch.nn.functional.gelu(first(x)),
    }
    step = compile_plain(functions[name], width, weights)
    added = [
        op for op in step.program.ops if program.KINDS[op["kind"]] == "elementwise" and op["size"][3] > 1
    ]
    num_added = num_added + (name == "after")  # and its relu
    if weights == "float32":
        assert len(added) == num_added
    for count in (1, 5, 31):
        items = torch.randn(count, width)
        words, buffers = step.layout.pack((torch.zeros(count),)), step.buffers(count)
        buffers.inputs[0].copy_(items)
        assert step.run(words, buffers) == OK
        with torch.no_grad():
            wanted = functions[name](items)
        tolerance = 1e-5 if weights == "float32" else 0.05
        torch.testing.assert_close(buffers.outputs[0], wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e18])
def test_a_bad_item_is_refused_and_the_state_untouched(bad: float) -> None:
    encoder = Encoder(EncoderConfig(**SMALL)).eval().fold()
    step = lower_encoder(encoder)
    words, buffers = step.layout.pack(encoder.init_state(2)), step.buffers(2)
    before = words.copy()
    buffers.inputs[0][0, 3] = bad
    assert step.run(words, buffers) == BAD_INPUT
    assert buffers.codes.tolist() == [BAD_INPUT, OK]
    np.testing.assert_array_equal(words[0], before[0])
    assert not np.array_equal(words[1], before[1])


def test_the_same_numbers_give_the_same_answer_in_whatever_they_come() -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(**SMALL)).eval().fold()
    session: Session = Session(encoder, engine="native")
    item = torch.randint(-2, 3, (24,)).float()
    conjugate = torch.complex(torch.zeros(24), -item).conj()
    session.push(item)  # which makes the program
    start, answers = session.to_bytes(), []
    for same in (
        item,
        item.double(),
        torch.stack([item, item], dim=1)[:, 0],
        conjugate.imag,
        item.numpy(),
        item.double().numpy(),
        item.tolist(),
        [int(number) for number in item],
        list(item.numpy()),
    ):
        session.restore(start)
        answers.append(session.push(same))
    assert conjugate.imag.is_neg()
    assert all(torch.equal(answer, answers[0]) for answer in answers)


@pytest.mark.parametrize(
    "wrong",
    [
        *([1.0] * 23, [1.0] * 25, ["a"] * 24, [[1.0]] * 24, [1e300] * 24, [10**400] * 24),
        *(torch.full((24,), 1e18), []),
    ],
)
def test_a_wrong_item_is_refused_after_the_program_is_made(wrong: object) -> None:
    session: Session = Session(Encoder(EncoderConfig(**SMALL)).eval().fold(), engine="native")
    session.push(torch.zeros(24))
    before = session.to_bytes()
    with pytest.raises((DataError, ShapeError)):
        session.push(wrong)  # type: ignore[arg-type]  # on purpose
    assert session.to_bytes() == before


def test_a_position_beyond_the_table_is_refused() -> None:
    encoder = Encoder(EncoderConfig(**SMALL, position="learned", max_positions=3)).eval().fold()
    step = lower_encoder(encoder)
    words, buffers = step.layout.pack(encoder.init_state(1)), step.buffers(1)
    assert [step.run(words, buffers) for _ in range(4)] == [OK, OK, OK, BAD_INDEX]


@pytest.mark.parametrize("dim", [0, 1])
def test_an_index_beyond_its_own_axis_is_refused_though_the_table_goes_on(dim: int) -> None:
    table = torch.arange(6.0).view(2, 3)

    def run(inputs: list[Tensor], state: tuple[Tensor]) -> tuple[list[Tensor], tuple[Tensor]]:
        return [table.gather(dim, inputs[0].view(2, 1)).view(1, 2)], state

    step = compile_step(run, [torch.zeros(1, 2, dtype=torch.int64)], (torch.zeros(1, 1),), largest=9.0)
    words, buffers = step.layout.pack((torch.zeros(1, 1),)), step.buffers(1)
    size = table.shape[dim]
    for first, second in itertools.product(range(-1, 5), repeat=2):
        given = torch.tensor([[first, second]])
        buffers.inputs[0].copy_(given)
        is_there = {first, second} <= set(range(size))
        assert step.run(words, buffers) == (OK if is_there else BAD_INDEX)
        if is_there:
            assert torch.equal(buffers.outputs[0], run([given], (given,))[0][0])


def sessions(model: nn.Module, **options: object) -> tuple[Session, Session]:
    """Open a session of either engine."""
    return model.stream(engine="torch", **options), model.stream(engine="native", **options)


def test_forecasts_and_saved_states_are_those_of_torch() -> None:
    torch.manual_seed(0)
    model = StreamingForecaster(StreamingForecasterConfig(num_series=2, horizon_steps=3, decay="learned"))
    slow, fast = sessions(model)
    assert (slow.engine, fast.engine) == ("torch", "native")
    for number in range(60):
        row, marks = 100.0 + 10.0 * np.random.default_rng(number).standard_normal(2), np.full(4, 0.1)
        extras = {"mask": number % 4 != 2} if number % 2 == 0 else {}
        wanted, found = slow.push(row, marks=marks, **extras), fast.push(row, marks=marks, **extras)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)  # of values near 100
        if number == 30:
            blob = fast.to_bytes()
            fast.restore(slow.to_bytes())
            slow.restore(blob)
            assert len(blob) == len(slow.to_bytes())
    assert fast.engine == "native"
    with pytest.raises(DataError, match="nan"):
        fast.push([float("nan"), 1.0], marks=np.zeros(4))
    assert torch.equal(fast.push(row, marks=marks, mask=False), found)


def test_saved_states_are_the_bytes_of_torch_and_damaged_ones_change_nothing() -> None:
    torch.manual_seed(0)
    model = StreamingForecaster(StreamingForecasterConfig(num_series=2, horizon_steps=3, num_marks=0))
    slow, fast = sessions(model)
    for _ in range(3):
        fast.push([1.0, 2.0])
    blob = fast.to_bytes()
    slow.restore(blob)
    assert slow.to_bytes() == blob == state_to_bytes(fast.state, fingerprint=model.fingerprint(), count=3)
    fast.push([5.0, 1e300 / 1e290])
    later = fast.to_bytes()
    for place in (0, 20, 60, len(blob) // 2, len(blob) - 1):
        damaged = bytearray(blob)
        damaged[place] ^= 1
        with pytest.raises(StateError):
            fast.restore(bytes(damaged))
        assert fast.to_bytes() == later
    with pytest.raises(DataError, match="finite numbers"):
        fast.push([5.0, 1e300])
    assert fast.to_bytes() == later
    fast.restore(blob)
    assert fast.to_bytes() == blob


@pytest.mark.parametrize("head", ["pooled", "flattened"])
def test_class_probabilities_are_those_of_torch(head: str) -> None:
    torch.manual_seed(0)
    config = ClassifierConfig(
        num_channels=3, num_classes=4, length=20, embedding="causal", head=head, width=16, num_heads=2
    )
    slow, fast = sessions(Classifier(config).eval(), batch_size=3)
    for _ in range(20):
        rows = torch.randn(3, 3)
        torch.testing.assert_close(fast.push(rows), slow.push(rows), rtol=1e-5, atol=1e-6)
    assert fast.engine == "native"
    if head == "flattened":
        for session in (slow, fast):
            with pytest.raises(ValueError, match="weights for 20 steps"):
                session.push(rows)


def test_events_are_those_of_torch() -> None:
    torch.manual_seed(0)
    model = EventModel(EventModelConfig(num_marks=3, time_decay="learned")).eval()
    slow, fast = sessions(model)
    time = 0.0
    for number in range(40):
        time += 0.1 + number % 5
        wanted, found = slow.push(time, number % 3), fast.push(time, number % 3)
        torch.testing.assert_close(found.median(), wanted.median(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.mark_probabilities, wanted.mark_probabilities, rtol=1e-5, atol=1e-6)
    assert fast.engine == "native"
    with pytest.raises(DataError, match="times must be finite and increase"):
        fast.push(time, 0)
    with pytest.raises(DataError, match=r"outside 0\.\.2"):
        fast.push(time + 1.0, 3)
    assert fast.state.time.item() == time


@pytest.mark.parametrize("actions", ["box", "discrete"])
@pytest.mark.parametrize("context", ["carried", "reset"])
def test_policies_act_as_with_torch(actions: str, context: str) -> None:
    torch.manual_seed(0)
    config = DecisionModelConfig(
        state_size=5, action_size=3, actions=actions, width=16, num_layers=2, context_steps=4
    )
    slow, fast = sessions(DecisionModel(config).eval(), context=context)
    for number in range(15):
        seen = np.random.default_rng(number).standard_normal(5)
        reward = None if number == 0 else 1.0
        np.testing.assert_allclose(fast.push(seen, reward), slow.push(seen, reward), atol=1e-5)
    assert fast.engine == "native"


def test_a_growing_state_stays_with_torch() -> None:
    model = StreamingForecaster(
        StreamingForecasterConfig(num_series=1, horizon_steps=2, num_marks=0, mixer="softmax")
    )
    session = model.stream()
    session.push([1.0])
    assert session.engine == "torch"
    with pytest.raises(LoweringError, match="constant size"):
        model.stream(engine="native").push([1.0])


class Peeking(nn.Module):
    """A step that looks at its numbers."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer = how, nn.Linear(2, 2)

    def step(self, x: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        """Branch on a number, hide it in a list, or use what no program knows."""
        if self.how == "branch" and bool(x.sum() > 0):
            return x, state
        if self.how == "list":
            return x * x.tolist()[0][0], state
        if self.how == "bits":
            return (x.long() & 6).float(), state
        if self.how == "erf":
            return x.erf(), state
        return torch.fft.fft(self.layer(x)).real, state


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("branch", r"looks at its numbers .*test_native.py:\d+ \(step\)"),
        ("list", "depends on its numbers in Python"),
        ("bits", r"does not know the operation aten.bitwise_and on bits of numbers"),
        ("fft", r"does not know .*test_native.py:\d+ \(step\)"),
        (
            "erf",
            r"does not know the operation aten.erf.default; it knows abs, add, .*where \(used at .*\(step\)",
        ),
    ],
)
def test_what_cannot_be_lowered_is_named_with_its_line(how: str, words: str) -> None:
    model = Peeking(how)

    def run(inputs: list[Tensor], state: tuple[Tensor]) -> tuple[list[Tensor], tuple[Tensor]]:
        output, state = model.step(inputs[0], state)
        return [output], state

    with pytest.raises(LoweringError, match=words):
        compile_step(run, [torch.ones(1, 2)], (torch.zeros(1, 1),), largest=1.0)


def test_python_reads_its_tables_from_the_header(tmp_path: Path) -> None:
    """What the parser makes of `runtime.h` is what a compiler makes of it."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    lines = [
        f'printf("%d\\n", (int){name});' for table in header.ENUMS.values() for name in [*table, "PANEL"]
    ]
    lines += [
        f'printf("%d\\n", (int){size});'
        for name, struct in header.STRUCTS.items()
        for size in [f"sizeof({name})", *(f"offsetof({name}, {field})" for field in struct.names)]
    ]
    source = tmp_path / "tables.c"
    source.write_text(
        '#define AAREN_INSIDE\n#include "runtime.h"\n#include <stdio.h>\n'
        f"int main(void) {{ {' '.join(lines)} return 0; }}"
    )
    command = ["gcc", "-std=c99", f"-I{hatch_build.RUNTIME}", str(source), "-o", str(tmp_path / "tables")]
    subprocess.run(command, check=True)
    done = subprocess.run([str(tmp_path / "tables")], capture_output=True, text=True, check=True)
    wanted = [
        number for table in header.ENUMS.values() for number in [*table.values(), header.DEFINES["PANEL"]]
    ]
    for struct in header.STRUCTS.values():
        wanted += [struct.itemsize, *(struct.fields[name][1] for name in struct.names)]
    assert [int(line) for line in done.stdout.split()] == wanted
    assert len(wanted) > 80


def test_every_code_has_its_place_in_the_runtime() -> None:
    source = (hatch_build.RUNTIME / "runtime.c").read_text()
    for name in header.ENUMS["codes"]:
        assert f"case {name}:" in source, name


@pytest.mark.parametrize("lanes", [1, 24])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_runtime_compiles_without_a_warning(compiler: str, lanes: int, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", f"-DAAREN_LANES={lanes}"]
    source = str(hatch_build.RUNTIME / "runtime.c")
    subprocess.run([compiler, *flags, source, "-o", str(tmp_path / "runtime.o")], check=True)
