"""What runs one step, in `aaren bench stream`: torch, the native engine, hand-written C, WebAssembly, ONNX.

All are the same folded network with the same weights, compared with torch before they are timed. A contender
whose tool is missing (a C compiler, ziglang and Node, onnxruntime) is a row that says so.
"""

import ctypes
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from aaren.bench.record import Row
from aaren.bench.stream_contenders import FOLDED, PAPER, SEED, SMALL, build
from aaren.bench.timing import Timing, time_interleaved
from aaren.errors import AarenError, MissingDependencyError
from aaren.forecasting import StreamingForecaster, StreamingForecasterConfig
from aaren.nn import Encoder
from aaren.rl import DecisionModel, DecisionModelConfig
from aaren.stream.export import export_stream
from aaren.stream.native.engine import NativeStep, compile_step
from aaren.stream.onnx import FILE, OnnxStream
from aaren.stream.session import Session, largest

TORCH, NATIVE, HAND, WASM, ONNX, READ = "torch", "native", "hand_written_c", "wasm", "onnx", "read_weights"
ENGINES: Mapping[str, str] = {
    TORCH: "torch, eager",
    NATIVE: "native",
    HAND: "C by hand",
    WASM: "WebAssembly in Node",
    ONNX: "onnxruntime",
    READ: "reading the weights once",
}
STEPS = 32  # of one sample
TOLERANCE = 1e-5
Call = Callable[[], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """How long each comparison takes."""

    budget_seconds: float = 6.0  # for the contenders of one size
    streams: int = 1024
    threads: int = 2
    has_wasm: bool = True  # ziglang's first compilation takes minutes


def measure_engines(settings: EngineSettings, on_step: Callable[[str], None]) -> list[Row]:
    """Time one stream on every engine, then many streams, then what a session adds."""
    rows: list[Row] = []
    threads = torch.get_num_threads()
    parts: dict[str, Callable[[], list[Row]]] = {
        "engines, 4 layers of 64": lambda: _one_stream(SMALL, settings),
        "engines, a block of 512": lambda: _one_stream(PAPER, settings),
        "many streams": lambda: _many_streams(settings),
        "sessions": lambda: _sessions(settings),
    }
    try:
        for what, part in parts.items():
            on_step(what)
            rows += part()
    finally:
        torch.set_num_threads(threads)
    return rows


def _one_stream(size: str, settings: EngineSettings) -> list[Row]:
    """Time single steps, turn by turn, on one thread: one stream has nothing to share."""
    torch.set_num_threads(1)
    encoder = build(size, FOLDED).eval()
    items = torch.randn(STEPS, 1, encoder.config.width, generator=torch.Generator().manual_seed(SEED))
    step = _native(encoder)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="aaren-bench-") as scratch, ExitStack() as stack:
        makers: dict[str, Callable[[Path], Call]] = {
            TORCH: lambda _: _torch_steps(encoder, items),
            NATIVE: lambda _: _native_steps(step, encoder, items),
            HAND: lambda folder: _hand_steps(encoder, items, folder),
            READ: lambda folder: _read(len(step.program.weights), folder),
        }
        if size == SMALL:
            makers[ONNX] = lambda folder: _onnx_steps(encoder, items, folder)
        if size == SMALL and settings.has_wasm:
            makers[WASM] = lambda folder: stack.enter_context(_wasm_steps(encoder, items, folder))
        calls: dict[str, Call] = {}
        skipped: dict[str, str] = {}
        for name, make in makers.items():
            folder = Path(scratch, name)
            folder.mkdir()
            try:
                calls[name] = make(folder)
            except AarenError as error:
                skipped[name] = str(error)
        if size == SMALL and not settings.has_wasm:
            skipped[WASM] = "left out of a quick run."
        with torch.inference_mode():
            timings = time_interleaved(calls, budget_seconds=settings.budget_seconds, max_repeats=1000)
        for name, timing in timings.items():
            fields = timing.fields("step_", parts={READ: 1, WASM: STEPS * WASM_TURNS}.get(name, STEPS))
            rows.append(_row(size, name, timing, fields))
    for name, why in skipped.items():
        rows.append({"what": "engine", "size": size, "contender": name, "streams": 1, "skipped": why})
    return rows


def _row(size: str, name: str, timing: Timing, fields: Mapping[str, float], streams: int = 1) -> Row:
    return {
        "what": "engine",
        "size": size,
        "contender": name,
        "streams": streams,
        **fields,
        "repeats": timing.repeats,
    }


def _native(encoder: Encoder) -> NativeStep[tuple[object, ...]]:
    def run(inputs: list[Tensor], state: tuple[object, ...]) -> tuple[list[Tensor], tuple[object, ...]]:
        output, new = encoder.step(inputs[0], state)  # type: ignore[arg-type]  # its own state
        return [output], new

    example = torch.zeros(1, encoder.config.width)
    return compile_step(run, [example], encoder.init_state(1), largest=largest(torch.float32))


def _torch_steps(encoder: Encoder, items: Tensor) -> Call:
    state = encoder.init_state(items.shape[1])

    def call() -> Tensor:
        nonlocal state
        for item in items:
            output, state = encoder.step(item, state)
        return output

    return call


@torch.no_grad()
def _wanted(encoder: Encoder, items: Tensor) -> Tensor:
    """Return torch's answer to the last item of a fresh stream."""
    answer = _torch_steps(encoder, items)()
    assert isinstance(answer, Tensor)
    return answer


def _require_equal(name: str, found: Tensor, wanted: Tensor) -> None:
    difference = float((found.double().reshape(-1) - wanted.double().reshape(-1)).abs().max())
    if not difference <= TOLERANCE:
        raise AarenError(f"{ENGINES[name]} differs from torch by {difference:.2g}: not the same network.")


def _native_steps(step: NativeStep[tuple[object, ...]], encoder: Encoder, items: Tensor) -> Call:
    slab, buffers = step.slab(1), step.buffers(1)
    step.pack(encoder.init_state(1), slab)
    (run, _), place, rows = step.bound(slab, buffers), buffers.input_arrays[0], items.numpy()

    def call() -> None:
        for row in rows:
            place[...] = row
            run()

    call()
    _require_equal(NATIVE, buffers.outputs[0], _wanted(encoder, items))
    return call


def _compile(code: str, folder: Path, **defines: object) -> ctypes.CDLL:
    """Compile C for this processor, as fast as the compiler can make it, and load it."""
    compiler = next((name for name in ("gcc", "clang", "cc") if shutil.which(name)), None)
    if compiler is None:
        raise MissingDependencyError("needs a C compiler: install gcc or clang.")
    source, library = folder / "code.c", folder / "code.so"
    source.write_text(code, encoding="utf-8")
    command = [compiler, "-std=c99", "-O3", "-march=native", "-ffast-math", "-fPIC", "-shared"]
    command += [*(f"-D{name}={value}" for name, value in defines.items()), str(source), "-o", str(library)]
    done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AarenError(f"C written by hand does not compile: {done.stderr.strip()[-500:]}")
    return ctypes.CDLL(str(library))


def _hand_steps(encoder: Encoder, items: Tensor, folder: Path) -> Call:
    """Give the hand-written network the weights."""
    config = encoder.config
    sizes = {
        "WIDTH": config.width,
        "HEADS": config.num_heads,
        "LAYERS": config.num_layers,
        "INNER": config.inner_width,
        "EPSILON": f"{config.norm_eps}f",
    }
    code = (resources.files("aaren.bench") / "hand_written.c").read_text(encoding="utf-8")
    library = _compile(code, folder, **sizes)
    weights = _aligned(np.concatenate([_hand_weights(block) for block in encoder.layers]))
    heads = config.num_heads
    state = _aligned(np.zeros(config.num_layers * (2 * heads + config.width)))
    library.hand_init(ctypes.c_void_p(state.ctypes.data))
    place, answer = _aligned(np.zeros(config.width, np.float32)), _aligned(np.zeros(config.width, np.float32))
    held = (weights, state, place, answer)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in held]
    step, rows = library.hand_step, items[:, 0].numpy()

    def call() -> object:
        for row in rows:
            place[...] = row
            step(*pointers)
        return held  # which stay alive

    call()
    _require_equal(HAND, torch.from_numpy(answer), _wanted(encoder, items))
    return call


def _aligned(array: np.ndarray) -> np.ndarray:
    """Return a copy that begins where a cache line does."""
    held = np.zeros(array.nbytes + 64, np.uint8)
    start = -held.ctypes.data % 64
    copied: np.ndarray = held[start : start + array.nbytes].view(array.dtype)
    copied[:] = array
    return copied


def _hand_weights(block: nn.Module) -> np.ndarray:
    """Return the weights of a block in the order of the struct `layer`."""
    held = dict(block.named_parameters())
    names = [
        *("mixer.weight", "mixer.bias", "mixer.out_weight", "mixer.out_bias"),
        *("mixer_norm.weight", "mixer_norm.bias", "feed_forward.widen.weight", "feed_forward.widen.bias"),
        *("feed_forward.narrow.weight", "feed_forward.narrow.bias"),
        *("feed_forward_norm.weight", "feed_forward_norm.bias"),
    ]
    return np.concatenate([held[name].detach().numpy().T.reshape(-1) for name in names])


def _read(num_bytes: int, folder: Path) -> Call:
    """Return a call that reads so many bytes once, as fast as a loop of C can."""
    code = (
        "float read_once(const float *x, long n) {\n"
        "  float s[64] = {0}, all = 0.0f; long i; int k;\n"
        "  for (i = 0; i < n; i += 64) for (k = 0; k < 64; k++) s[k] += x[i + k];\n"
        "  for (k = 0; k < 64; k++) all += s[k];\n"
        "  return all;\n}\n"
    )
    read = _compile(code, folder).read_once
    read.restype = ctypes.c_float
    count = math.ceil(num_bytes / 256) * 64
    block = _aligned(np.ones(count, np.float32))
    arguments = (ctypes.c_void_p(block.ctypes.data), ctypes.c_long(count))

    def call() -> object:
        return read(*arguments), block  # which stays alive

    return call


def _onnx_steps(encoder: Encoder, items: Tensor, folder: Path) -> Call:
    export_stream(encoder, folder, to="onnx", example=items[0])
    stream, rows = OnnxStream(folder / FILE), list(items.numpy())
    _, found = [stream.step({"item": row}) for row in rows][-1]
    _require_equal(ONNX, torch.from_numpy(found["output"]), _wanted(encoder, items))

    def call() -> None:
        for row in rows:
            stream.step({"item": row})

    return call


WASM_TURNS = 16  # in one answer of Node: writing to it and reading takes as long as many steps
_NODE = (
    f"const TURNS = {WASM_TURNS};"
    + """
import { createInterface } from "node:readline";
const [module, given] = process.argv.slice(1);
const { load } = await import(module);
const stream = await load();
const items = JSON.parse(given).map((item) => Float32Array.from(item));
let found;
for (const item of items) found = stream.push({ item });
console.log(JSON.stringify(Array.from(found.output)));
for await (const line of createInterface({ input: process.stdin })) {
  for (let turn = 0; turn < TURNS; turn++) for (const item of items) stream.push({ item });
  console.log("");
}
"""
)


@contextmanager
def _wasm_steps(encoder: Encoder, items: Tensor, folder: Path) -> Iterator[Call]:
    """Keep the exported module in a process of Node, which takes a turn whenever it is sent a line."""
    node = shutil.which("node")
    if node is None:
        raise MissingDependencyError("needs Node: install nodejs.")
    export_stream(encoder, folder, to="wasm", example=items[0])
    module = (folder / "aaren_model.js").resolve().as_uri()
    given = json.dumps(items[:, 0].tolist())
    with subprocess.Popen(
        [node, "--input-type=module", "-e", _NODE, module, given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        first = child.stdout.readline()
        _require_equal(WASM, torch.tensor(json.loads(first)), _wanted(encoder, items))
        to, answers = child.stdin, child.stdout

        def call() -> None:
            to.write("\n")
            answers.readline()

        for _ in range(50):  # until the module is compiled for speed
            call()
        try:
            yield call
        finally:
            child.stdin.close()
            child.wait(timeout=10)


def _many_streams(settings: EngineSettings) -> list[Row]:
    """Step many streams in one call, with the batched step of torch beside it."""
    torch.set_num_threads(settings.threads)
    encoder, count = build(SMALL, FOLDED).eval(), settings.streams
    items = torch.randn(1, count, encoder.config.width, generator=torch.Generator().manual_seed(SEED))
    step = _native(encoder)
    slab, buffers = step.slab(count), step.buffers(count)
    step.pack(encoder.init_state(count), slab)

    def native() -> None:
        buffers.inputs[0].copy_(items[0])
        step.run_many(slab, buffers, threads=settings.threads)

    native()
    _require_equal(NATIVE, buffers.outputs[0], _wanted(encoder, items))
    calls: dict[str, Call] = {TORCH: _torch_steps(encoder, items), NATIVE: native}
    with torch.inference_mode():
        timings = time_interleaved(calls, budget_seconds=settings.budget_seconds, max_repeats=1000)
    return [
        {
            **_row(SMALL, name, timing, timing.fields("step_"), streams=count),
            "threads": settings.threads,
            "tokens_per_second": count / timing.median,
        }
        for name, timing in timings.items()
    ]


def _sessions(settings: EngineSettings) -> list[Row]:
    """Time what a session adds to a native step, and states to and from bytes."""
    torch.set_num_threads(1)
    encoder = build(SMALL, FOLDED).eval()
    items = torch.randn(STEPS, encoder.config.width, generator=torch.Generator().manual_seed(SEED))
    kinds: dict[str, list[object]] = {
        "array": list(items.numpy()),
        "tensor": list(items),
        "list": items.tolist(),
    }
    calls: dict[str, Call] = {"bare": _native_steps(_native(encoder), encoder, items.unsqueeze(1))}
    for kind, rows in kinds.items():
        session: Session[tuple[object, ...]] = Session(encoder, engine="native")
        calls[kind] = _pushes(session, rows)
    timings = time_interleaved(calls, budget_seconds=settings.budget_seconds, max_repeats=1000)
    rows_: list[Row] = [
        {
            "what": "session",
            "item": kind,
            **timing.fields("step_", parts=STEPS),
            "overhead_seconds": (timing.median - timings["bare"].median) / STEPS,
            "repeats": timing.repeats,
        }
        for kind, timing in timings.items()
    ]
    return rows_ + _saved_states(settings)


def _pushes(session: Session[tuple[object, ...]], rows: list[object]) -> Call:
    def call() -> None:
        for row in rows:
            session.push(row)  # type: ignore[arg-type]  # an array, a tensor or a list

    call()
    return call


def _repeat(call: Callable[..., object], *given: object) -> None:
    for _ in range(STEPS):
        call(*given)


def _saved_states(settings: EngineSettings) -> list[Row]:
    forecaster = StreamingForecaster(StreamingForecasterConfig(num_series=2, horizon_steps=3, num_marks=0))
    small = forecaster.stream()
    policy = DecisionModel(DecisionModelConfig(state_size=17, action_size=6)).eval().stream()
    for _ in range(3):
        small.push([1.0, 2.0])
        policy.push(np.zeros(17), None if policy.count == 0 else 1.0)
    calls: dict[str, Call] = {}
    for name, session in (("small", small), ("decision", policy)):
        blob = session.to_bytes()
        calls[f"{name} to_bytes"] = partial(_repeat, session.to_bytes)
        calls[f"{name} restore"] = partial(_repeat, session.restore, blob)
    timings = time_interleaved(calls, budget_seconds=settings.budget_seconds / 2, max_repeats=1000)
    return [
        {
            "what": "saved_state",
            "model": name.split()[0],
            "call": name.split()[1],
            **timing.fields("", parts=STEPS),
            "repeats": timing.repeats,
        }
        for name, timing in timings.items()
    ]
