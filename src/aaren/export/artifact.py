"""An exported model beside torch: loaded, or run in Node or onnxruntime, and compared row by row."""

import base64
import ctypes
import json
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import AarenError, ConfigError, DataError, MissingDependencyError, StateError
from aaren.export import onnx
from aaren.export.program import Program
from aaren.export.whole import WholeStep
from aaren.files.atomic import write_text
from aaren.nn.blocks import HEAD, Block, layout_of, read_blocks, seal

WEIGHTS_FILE = "weights.bin"  # of C, where the weights are not among the sources


def build_library(folder: Path, target: Path, *, flags: Sequence[str] = ("-O2",)) -> Path:
    """Compile exported C into the shared library `target`, with gcc, clang or zig."""
    compiler = next(([name] for name in ("gcc", "clang", "cc") if shutil.which(name)), None)
    if compiler is None:
        try:
            import ziglang  # type: ignore[import-untyped]
        except ImportError as error:
            raise MissingDependencyError(
                "checking an exported model needs a C compiler: install gcc or clang, or pip install "
                "'aaren[export]'"
            ) from error
        compiler = [str(Path(ziglang.__file__).parent / "zig"), "cc"]
    sources = [str(path) for path in sorted(folder.glob("aaren_*.c"))]
    command = [*compiler, "-std=c99", *flags, "-fPIC", "-shared", *sources, "-o", str(target), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"the exported sources do not compile: {done.stderr.strip()[-2000:]}")
    return target


class Artifact:
    """Exported C, compiled and loaded: raw numbers in, answers out. For checks and tests."""

    def __init__(self, library: Path, program: Program, *, weights: bytes = b"") -> None:
        self._functions = ctypes.CDLL(str(library))
        self._weights = [np.frombuffer(weights, np.uint64).copy()] if weights else []
        for block in self._weights:
            given = ctypes.c_void_p(block.ctypes.data), ctypes.c_size_t(block.nbytes)
            if self._functions.aaren_check_weights(*given):
                raise DataError("the weights are damaged, or of another model.")
        self._functions.aaren_state_bytes.restype = ctypes.c_size_t
        self.program = program
        self.state = ctypes.create_string_buffer(self._functions.aaren_state_bytes() + 8)
        self._start = ctypes.addressof(self.state) + -ctypes.addressof(self.state) % 8
        self.reset()

    def reset(self) -> None:
        """Forget all items."""
        self._functions.aaren_init(ctypes.c_void_p(self._start))

    @property
    def block(self) -> bytes:
        """The state, as it may be saved."""
        self._functions.aaren_seal(ctypes.c_void_p(self._start))
        return ctypes.string_at(self._start, len(self.state) - 8)

    @block.setter
    def block(self, content: bytes) -> None:
        if self._functions.aaren_check(content, ctypes.c_size_t(len(content))):
            raise StateError("the state is damaged, or of another model.")
        ctypes.memmove(self._start, content, len(content))

    def step(self, inputs: Sequence[Tensor]) -> tuple[int, list[Tensor]]:
        """Take in one item and return the code and the answers, without the stream's axis."""
        given = torch.zeros(max(8, self.program.input_bytes), dtype=torch.uint8)
        found = torch.zeros(max(8, self.program.output_bytes), dtype=torch.uint8)
        for value, leaf in zip(inputs, self.program.inputs, strict=True):
            size = leaf.count * leaf.dtype.itemsize
            given[leaf.offset : leaf.offset + size] = (
                value.to(leaf.dtype).contiguous().view(-1).view(torch.uint8)
            )
        code = self._functions.aaren_step(
            *(ctypes.c_void_p(block.ctypes.data) for block in self._weights),
            ctypes.c_void_p(self._start),
            ctypes.c_void_p(given.data_ptr()),
            ctypes.c_void_p(found.data_ptr()),
        )
        outputs = [
            found[leaf.offset : leaf.offset + leaf.count * leaf.dtype.itemsize]
            .view(leaf.dtype)
            .view(leaf.shape)
            for leaf in self.program.outputs
        ]
        return code, outputs


def read_rows(path: Path) -> NDArray[np.float64]:
    """Read rows of numbers for a check, from .npy or from text with commas."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # NumPy's, of a file without rows
            rows = (
                np.load(path, allow_pickle=False)
                if path.suffix == ".npy"
                else np.loadtxt(path, delimiter=",", ndmin=2)
            )
    except (OSError, ValueError, UserWarning) as error:
        raise DataError(f"{path}: expected rows of numbers, as .npy or with commas ({error}).") from error
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise DataError(f"{path}: expected rows of numbers, (n, inputs); got {rows.shape} of {rows.dtype}.")
    return np.asarray(rows, dtype=np.float64)


def split_row(whole: WholeStep, row: NDArray[np.float64]) -> list[Tensor]:
    """Cut a row of plain numbers into the inputs of a step, (1, ...)."""
    found, start = [], 0
    for name, example in whole.inputs.items():
        count = example.numel()
        part = torch.from_numpy(np.array(row[start : start + count], dtype=np.float64))
        if not example.is_floating_point() and bool((part != part.floor()).any()):
            raise DataError(f"{name} must be whole numbers; got {part.tolist()}.")
        found.append(part.to(example.dtype).view(example.shape))
        start += count
    if start != len(row):
        raise DataError(
            f"a row must have {start} numbers, those of {', '.join(whole.inputs)}; got {len(row)}."
        )
    return found


def compare(
    whole: WholeStep, folder: Path, program: Program, rows: NDArray[np.float64], *, to: str
) -> tuple[float, float]:
    """Replay rows through torch and the artifact; return the largest and the mean difference.

    Both are shares of the largest answer, or of 1 where answers are smaller.
    """
    if not len(rows):
        raise DataError("there are no rows to check with.")
    items, wanted, state = [], [], whole.state
    for number, row in enumerate(rows):
        try:
            if not np.isfinite(row).all():
                raise DataError(f"{row.tolist()} is not finite.")
            items.append(split_row(whole, row))
            with torch.no_grad():
                outputs, state = whole.run(items[-1], state)
        except AarenError as error:
            raise type(error)(f"row {number} of the check: {error}") from error
        wanted.append(outputs)
    found = {"c": _replay_c, "wasm": _replay_wasm, "onnx": _replay_onnx}[to](whole, folder, program, items)
    differences = []
    for number, (code, answers) in enumerate(found):
        if code:
            raise DataError(f"row {number} of the check is refused by the artifact with code {code}.")
        for want, have in zip(wanted[number], answers, strict=True):
            if want.numel():
                scale = max(1.0, float(want.abs().max()))
                differences.append((want[0].double() - have.double()).abs() / scale)
    joined = torch.cat([part.reshape(-1) for part in differences]) if differences else torch.zeros(1)
    return float(joined.max()), float(joined.mean())


Answers = list[tuple[int, list[Tensor]]]  # of every row: the code, and the outputs without the stream's axis


def _replay_c(whole: WholeStep, folder: Path, program: Program, items: list[list[Tensor]]) -> Answers:
    del whole
    file = folder / WEIGHTS_FILE
    with tempfile.TemporaryDirectory(prefix="aaren-export-", ignore_cleanup_errors=True) as scratch:
        library = build_library(folder, Path(scratch) / "model.so")
        artifact = Artifact(library, program, weights=file.read_bytes() if file.is_file() else b"")
        return [artifact.step(inputs) for inputs in items]


def _replay_onnx(whole: WholeStep, folder: Path, program: Program, items: list[list[Tensor]]) -> Answers:
    del program
    stream, answers = OnnxStream(folder / onnx.FILE), []
    for inputs in items:
        given = {name: part.contiguous().numpy() for name, part in zip(whole.inputs, inputs, strict=True)}
        code, found = stream.step(given)
        answers.append((int(code[0]), [torch.tensor(found[name][0]) for name in whole.outputs]))
    return answers


def _replay_wasm(whole: WholeStep, folder: Path, program: Program, items: list[list[Tensor]]) -> Answers:
    """Run the ES module in Node."""
    node = shutil.which("node")
    if node is None:
        raise MissingDependencyError("--check of WebAssembly needs Node: install nodejs, or check --to c.")
    given = [
        {
            name: [str(value) if part.dtype == torch.int64 else value for value in part.reshape(-1).tolist()]
            for name, part in zip(whole.inputs, inputs, strict=True)
        }
        for inputs in items
    ]
    script = """
    import { readFileSync } from "node:fs";
    const [module, rows] = process.argv.slice(1);
    const { load } = await import(module);
    const stream = await load();
    const answers = JSON.parse(readFileSync(rows, "utf8")).map((row) => {
      const found = Object.entries(stream.push(row));
      return Object.fromEntries(found.map(([name, part]) => [name, Array.from(part, Number)]));
    });
    process.stdout.write(JSON.stringify(answers));
    """
    with tempfile.TemporaryDirectory(prefix="aaren-export-") as scratch:
        rows = Path(scratch) / "rows.json"
        write_text(rows, json.dumps(given))
        module = (folder / "aaren_model.js").resolve().as_uri()
        command = [node, "--input-type=module", "-e", script, module, str(rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DataError(f"the check in Node failed: {done.stderr.strip()[-1000:]}")
    return [
        (0, [torch.tensor(row[name], dtype=torch.float64).view(leaf.shape)
             for name, leaf in zip(whole.outputs, program.outputs, strict=True)])
        for row in json.loads(done.stdout)
    ]  # fmt: skip


class OnnxStream:
    """An exported step in onnxruntime: one or more streams under way. For checks and tests.

    Items, answers and states lie in memory that the session knows: a state is written beside the one it comes
    from, and the two change places.
    """

    def __init__(self, path: Path, *, count: int = 1) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingDependencyError("ONNX needs: pip install 'aaren[onnx]'") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._value = onnxruntime.OrtValue.ortvalue_from_numpy  # which on a CPU is the array's own memory
        kept = self._session.get_modelmeta().custom_metadata_map
        self.manifest = json.loads(kept["manifest"])
        first = json.loads(kept["initial_state"])
        self._parts: list[dict[str, Any]] = first["parts"]
        self._empty = base64.b64decode(first["block"])
        self._fingerprint = str(self.manifest.get("fingerprint", ""))
        (block,) = read_blocks(self._empty, fingerprint=self._fingerprint, layout=layout_of(self._empty))
        self._first = self._split([block])
        self._states = [
            {name: np.repeat(part, count, axis=0) for name, part in self._first.items()} for _ in range(2)
        ]
        self._inputs: dict[str, NDArray[Any]] = {}
        self._bindings: list[Any] = []  # of onnxruntime: from the first state to the second, and back
        self.reset()

    def reset(self) -> None:
        """Forget all items."""
        self.state = self._first

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """The parts of the states, each (b, ...), by name."""
        return {name: part.copy() for name, part in self._states[0].items()}

    @state.setter
    def state(self, given: Mapping[str, NDArray[Any]]) -> None:
        for name, part in self._states[0].items():
            np.copyto(part, given[name], casting="no")

    @property
    def blocks(self) -> bytes:
        """The states as blocks, end to end."""
        blocks = []
        for stream in range(len(next(iter(self._states[0].values())))):
            payload = bytearray(len(self._empty) - HEAD.size)
            for part in self._parts:
                content = self._states[0][f"past.{part['name']}"][stream].tobytes()
                payload[part["offset"] : part["offset"] + len(content)] = content
            blocks.append(seal(bytes(payload), fingerprint=self._fingerprint, layout=layout_of(self._empty)))
        return b"".join(blocks)

    @blocks.setter
    def blocks(self, blob: bytes) -> None:
        self.state = self._split(
            read_blocks(blob, fingerprint=self._fingerprint, layout=layout_of(self._empty))
        )

    def _split(self, blocks: Sequence[Block]) -> dict[str, NDArray[Any]]:
        """Return the parts of the states in blocks."""
        return {
            f"past.{part['name']}": np.stack(
                [
                    np.frombuffer(
                        block.payload, part["type"], int(np.prod(part["shape"], dtype=int)), part["offset"]
                    ).reshape(part["shape"])
                    for block in blocks
                ]
            )
            for part in self._parts
        }

    def step(self, inputs: dict[str, NDArray[Any]]) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Take in one item of each stream; return the codes and the answers by name."""
        if not self._bindings:
            self._bind(inputs)
        for name, place in self._inputs.items():
            np.copyto(place, inputs[name], casting="no")
        self._session.run_with_iobinding(self._bindings[0])
        self._bindings.reverse()
        self._states.reverse()
        answers = {name: place.copy() for name, place in self._outputs.items()}
        return answers.pop("code"), answers

    def _bind(self, inputs: dict[str, NDArray[Any]]) -> None:
        """Tell the session where everything lies; one run shows the shapes of the answers."""
        names = [output.name for output in self._session.get_outputs()]
        found = dict(zip(names, self._session.run(None, {**inputs, **self._states[0]}), strict=True))
        self._inputs = {name: np.empty_like(item) for name, item in inputs.items()}
        self._outputs = {name: found[name] for name in names if not name.startswith("present.")}
        for before, after in (self._states, self._states[::-1]):
            binding = self._session.io_binding()
            for name, place in {**self._inputs, **before}.items():
                binding.bind_ortvalue_input(name, self._value(place))
            new = {name.replace("past.", "present.", 1): place for name, place in after.items()}
            for name, place in {**self._outputs, **new}.items():
                binding.bind_ortvalue_output(name, self._value(place))
            self._bindings.append(binding)
