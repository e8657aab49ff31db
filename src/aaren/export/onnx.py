"""Write a step as ONNX: batches of any size, the state as explicit inputs and outputs.

From the operations of the native engine. Every value is (b, n): what a tensor of one stream holds.
A tensor is a place in a storage; `_Graph` remembers of which value and column each number of a storage is.
"""

import base64
import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from aaren.errors import MissingDependencyError
from aaren.export.assemble import simplify
from aaren.export.lower import Lowering
from aaren.export.program import BAD_INDEX, BAD_INPUT, BAD_OUTPUT, CODES, OK, REDUCTIONS, Op
from aaren.export.record import LoweringError, Recording, Ref, record
from aaren.export.whole import WholeStep
from aaren.files.atomic import write_bytes
from aaren.nn.blocks import Layout, state_to_bytes
from aaren.nn.state import flatten

FILE, OPSET, IR_VERSION = "model.onnx", 20, 10
TYPES = {torch.float32: 1, torch.float64: 11, torch.int64: 7, torch.bool: 9}  # of onnx.TensorProto
SAME = {  # as ONNX calls what takes numbers of one type and gives the same
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tanh": "Tanh",
    "sigmoid": "Sigmoid", "softplus": "Softplus", "relu": "Relu", "abs": "Abs", "floor": "Floor",
    "gelu": "Gelu", "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max",
}  # fmt: skip
COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def write_onnx(path: Path, whole: WholeStep, manifest: dict[str, Any]) -> None:
    """Write a model from the step's inputs and `past.*` to its outputs and `present.*`.

    The output `code` (b,) is 0, or says why an item was refused, as runtime.h; such a stream keeps its state.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingDependencyError("ONNX needs: pip install 'aaren[onnx]'") from error
    leaves, spec = pytree.tree_flatten(whole.state)

    def run(given: list[Tensor], held: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        outputs, new = whole.run(given, pytree.tree_unflatten(held, spec))
        return outputs, pytree.tree_leaves(new)

    recording = record(
        run, [tensor.clone() for tensor in whole.inputs.values()], [leaf.detach() for leaf in leaves]
    )
    graph = _Graph(recording, whole.largest)
    # `0.m` for `encoder.layers.0.m`
    names = [name.removeprefix("encoder.").removeprefix("layers.") for name, _ in flatten(whole.state)]
    graph.build(list(whole.inputs), list(whole.outputs), names)
    helper = onnx.helper

    def value(name: str, ref: Ref) -> Any:
        return helper.make_tensor_value_info(name, TYPES[ref.dtype], ["b", *ref.shape[1:]])

    made = helper.make_model(
        helper.make_graph(
            [helper.make_node(*args, **kwargs) for args, kwargs in graph.nodes],
            "aaren_step",
            [
                *(value(name, ref) for name, ref in zip(whole.inputs, recording.inputs, strict=True)),
                *(value(f"past.{name}", ref) for name, ref in zip(names, recording.states, strict=True)),
            ],
            [
                *(value(name, ref) for name, ref in zip(whole.outputs, recording.outputs, strict=True)),
                *(value(f"present.{name}", ref) for name, ref in zip(names, recording.states, strict=True)),
                helper.make_tensor_value_info("code", TYPES[torch.int64], ["b"]),
            ],
            [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="aaren",
    )
    parts = [
        {"name": name, "type": str(leaf.dtype)[6:], "shape": leaf.shape, "offset": leaf.offset}
        for name, leaf in zip(names, Layout(whole.state).leaves, strict=True)
    ]
    block = state_to_bytes(whole.state, fingerprint=whole.fingerprint)
    first = {"parts": parts, "block": base64.b64encode(block).decode()}
    helper.set_model_props(made, {"manifest": json.dumps(manifest), "initial_state": json.dumps(first)})
    onnx.checker.check_model(made)
    write_bytes(path, made.SerializeToString())


class _Graph:
    """Nodes and constants under way."""

    def __init__(self, recording: Recording, largest: float) -> None:
        self.recording, self.largest = recording, largest
        self.lowering = Lowering(recording)
        self.nodes: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._known: dict[tuple[Any, ...], str] = {}
        self._values: list[tuple[str, int]] = []  # name and width
        self._sources: dict[int, NDArray[np.int64]] = {}  # of every number of a storage: value, column
        self._shaped: dict[tuple[str, tuple[int, ...]], str] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._checks: list[tuple[str, int]] = []

    def build(self, inputs: list[str], outputs: list[str], states: list[str]) -> None:
        """Add everything."""
        recording, lowering = self.recording, self.lowering
        lowering.lower_nodes()
        ops = simplify(lowering.ops, {ref.storage for ref in [*recording.outputs, *recording.new_states]})
        self._batch = self.node("Shape", [inputs[0]], torch.int64, start=0, end=1)
        for name, ref in [
            *zip(inputs, recording.inputs, strict=True),
            *zip([f"past.{name}" for name in states], recording.states, strict=True),
        ]:
            self._dtypes[name] = ref.dtype
            flat = name
            if len(ref.shape) != 2:
                flat = self.reshape(name, (ref.numel,))
                self._shaped[flat, ref.shape[1:]] = name
            self.write(ref, flat)
        for ref in recording.inputs:
            self.bound(self.read(ref), ref, self.largest, BAD_INPUT)
        for op in ops:
            getattr(self, op.kind)(op)
        self.finish(outputs, states)

    def finish(self, outputs: list[str], states: list[str]) -> None:
        """Give outputs their names, and refused items their code and their old state."""
        recording = self.recording
        found = [self.full(self.read(ref), ref.numel) for ref in recording.outputs]
        for name, ref, flat in zip(outputs, recording.outputs, found, strict=True):
            self.bound(flat, ref, math.inf, BAD_OUTPUT)
            self.node("Identity", [self.reshape(flat, ref.shape[1:])], ref.dtype, to=name)
        code = self.full(self.number(OK, torch.int64), 1)
        for fine, number in reversed(self._checks):  # the first one that fails is told
            code = self.node("Where", [fine, code, self.number(number, torch.int64)], torch.int64)
        is_fine = self.node("Equal", [code, self.number(OK, torch.int64)], torch.bool)
        self.node("Identity", [self.reshape(code, ())], torch.int64, to="code")
        for name, old, new in zip(states, recording.states, recording.new_states, strict=True):
            kept = self.where(is_fine, self.full(self.read(new), new.numel), self.read(old), old.dtype)
            self.node("Identity", [self.reshape(kept, old.shape[1:])], old.dtype, to=f"present.{name}")

    def bound(self, value: str, ref: Ref, limit: float, code: int) -> None:
        """Refuse items whose numbers are beyond a limit, or not finite."""
        if ref.dtype.is_floating_point:
            limit = min(limit, torch.finfo(ref.dtype).max)
            size = self.node("Abs", [value], ref.dtype)
            fine = self.node("LessOrEqual", [size, self.number(limit, ref.dtype)], torch.bool)
            self._checks.append((self.all(fine, ref.numel), code))

    def node(self, kind: str, inputs: Sequence[str], dtype: torch.dtype, **options: Any) -> str:
        """Add a node with one result."""
        name = options.pop("to", "") if kind == "Identity" else f"v{len(self.nodes)}"
        self.nodes.append(((kind, list(inputs), [name]), options))
        self._dtypes[name] = dtype
        return name

    def constant(self, array: NDArray[Any]) -> str:
        """Return the name of numbers that are known."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"c{len(self.constants)}"
            self.constants[self._known[key]] = array
            self._dtypes[self._known[key]] = torch.from_numpy(array.copy()).dtype
        return self._known[key]

    def whole(self, *numbers: int) -> str:
        """Return whole numbers, (n,)."""
        return self.constant(np.array(numbers, np.int64))

    def number(self, value: float, dtype: torch.dtype) -> str:
        """Return one number, (1, 1)."""
        return self.constant(torch.tensor([[value]], dtype=dtype).numpy())

    def cast(self, value: str, dtype: torch.dtype) -> str:
        """Return a value in another type."""
        if self._dtypes[value] == dtype:
            return value
        key = ("cast", value, dtype)
        if key not in self._known:
            self._known[key] = self.node("Cast", [value], dtype, to=TYPES[dtype])
        return self._known[key]

    def reshape(self, value: str, shape: tuple[int, ...]) -> str:
        """Return (b, *shape)."""
        if 0 in shape:  # which Reshape takes for something else
            to = self.node("Concat", [self._batch, self.whole(*shape)], torch.int64, axis=0)
            zeros = self.weights(torch.zeros(1, *shape, dtype=self._dtypes[value]))
            return self.node("Expand", [zeros, to], self._dtypes[value])
        if (value, shape) not in self._shaped:
            made = self.node("Reshape", [value, self.whole(-1, *shape)], self._dtypes[value])
            self._shaped[value, shape] = made
        return self._shaped[value, shape]

    def flat(self, value: str, shape: tuple[int, ...]) -> str:
        """Return (b, n) of (b, *shape), remembering where it comes from."""
        made = self.node("Reshape", [value, self.whole(-1, math.prod(shape))], self._dtypes[value])
        self._shaped[made, shape] = value
        return made

    def full(self, value: str, numel: int) -> str:
        """Return (b, n) of what may be (1, n): a constant."""
        if value not in self.constants:
            return value
        shape = self.node("Concat", [self._batch, self.whole(numel)], torch.int64, axis=0)
        return self.node("Expand", [value, shape], self._dtypes[value])

    def all(self, truths: str, numel: int) -> str:
        """Return (b, 1): whether all of (b, n) are true."""
        if numel == 1:
            return truths
        given = [self.cast(truths, torch.float32), self.whole(1)]
        return self.cast(self.node("ReduceMin", given, torch.float32, keepdims=1), torch.bool)

    def read(self, ref: Ref) -> str:
        """Return the numbers of a tensor, (b, n)."""
        if self.lowering.is_constant(ref):
            flat = self.lowering.value(ref).reshape(1, -1).contiguous().numpy()
            return self.constant(flat[:, :1] if flat.size and (flat == flat[:, :1]).all() else flat)
        if not ref.numel:
            return self.weights(torch.zeros(1, 0, dtype=ref.dtype))
        sources = self._sources[ref.storage][_places(ref)]
        key = ("read", sources.tobytes())
        if key not in self._known:
            self._known[key] = self._gather(sources, ref.dtype)
        return self._known[key]

    def _gather(self, sources: NDArray[np.int64], dtype: torch.dtype) -> str:
        """Return a value with columns of others."""
        assert (sources[:, 0] >= 0).all(), "read before it was written"
        wanted, places = np.unique(sources[:, 0], return_inverse=True)
        names, widths = zip(*(self._values[number] for number in wanted), strict=True)
        joined = names[0] if len(names) == 1 else self.node("Concat", names, dtype, axis=1)
        columns = np.cumsum([0, *widths])[places] + sources[:, 1]
        if (np.diff(columns) != 1).any():
            return self.node("Gather", [joined, self.constant(columns)], dtype, axis=1)
        if len(columns) == sum(widths):
            return joined
        ends = [self.whole(end) for end in (columns[0], columns[-1] + 1, 1)]
        return self.node("Slice", [joined, *ends], dtype)

    def write(self, ref: Ref, value: str) -> None:
        """Remember that the numbers of a tensor are those of a value (b, n), which gets the tensor's type."""
        places = _places(ref)
        held = self._sources.get(ref.storage, np.empty((0, 2), np.int64))
        if places.size and len(held) <= places.max():
            grown = np.full((places.max() + 1, 2), -1, np.int64)
            grown[: len(held)] = held
            held = grown
        held[places] = np.stack([np.full(len(places), len(self._values)), np.arange(len(places))], axis=1)
        self._sources[ref.storage] = held
        self._values.append((self.full(self.cast(value, ref.dtype), len(places)), len(places)))

    def where(self, condition: str, yes: str, no: str, dtype: torch.dtype) -> str:
        """Choose; of truths by way of numbers, which onnxruntime needs."""
        if dtype != torch.bool:
            return self.node("Where", [condition, yes, no], dtype)
        yes, no = self.cast(yes, torch.int64), self.cast(no, torch.int64)
        return self.cast(self.node("Where", [condition, yes, no], torch.int64), torch.bool)

    def elementwise(self, op: Op) -> None:
        """One number for one."""
        (out,) = op.first(1)
        views = [
            _view(ref, op.size, stride)
            for ref, stride in zip(op.operands[1:], op.strides[1:], strict=True)
            if ref is not None
        ]
        operands, kinds = [self.read(view) for view in views], [view.dtype for view in views]
        made = self.apply(CODES[op.code], operands, kinds, out.dtype, op.numbers)
        self.write(_view(out, op.size, op.strides[0]), made)

    def apply(
        self,
        code: str,
        given: list[str],
        kinds: list[torch.dtype],
        dtype: torch.dtype,
        numbers: Sequence[float],
    ) -> str:
        """Return the result of an elementwise operation."""
        if code == "copy":
            return self.cast(given[0], dtype)
        if code == "where":
            yes, no = (self.cast(part, dtype) for part in given[1:])
            return self.where(self.cast(given[0], torch.bool), yes, no, dtype)
        if code in ("and", "or", "not"):
            truths = [self.cast(part, torch.bool) for part in given]
            return self.node(code.capitalize(), truths, torch.bool)
        if code in COMPARISONS or code == "ne":
            common = functools.reduce(torch.promote_types, kinds)
            common = torch.int64 if common == torch.bool else common
            pair = [self.cast(part, common) for part in given]
            found = self.node(COMPARISONS.get(code, "Equal"), pair, torch.bool)
            return self.node("Not", [found], torch.bool) if code == "ne" else found
        if code == "isnan":
            return self.node("IsNaN", given, torch.bool)
        if code == "gelu" and dtype == torch.float64:  # onnxruntime has it for float32 alone
            narrow = [self.cast(part, torch.float32) for part in given]
            return self.cast(self.apply(code, narrow, kinds, torch.float32, numbers), dtype)
        x = [self.cast(part, dtype) for part in given]

        def do(kind: str, *parts: str) -> str:
            return self.node(kind, parts, dtype)

        def tail() -> str:
            """Return log(1 + exp(-|x|))."""
            return do("Log", do("Add", self.number(1.0, dtype), do("Exp", do("Neg", do("Abs", x[0])))))

        if dtype == torch.float64 and code == "cos":  # onnxruntime has it for float32 alone: too few digits
            return do("Sin", do("Add", x[0], self.number(math.pi / 2.0, dtype)))
        if dtype == torch.float64 and code == "softplus":  # likewise: max(x, 0) + log(1 + exp(-|x|))
            return do("Add", do("Max", x[0], self.number(0.0, dtype)), tail())
        if code in SAME:
            return do(SAME[code], *x)
        if code == "silu":
            return do("Mul", x[0], do("Sigmoid", x[0]))
        if code == "log_sigmoid":
            return do("Sub", do("Min", x[0], self.number(0.0, dtype)), tail())
        if code == "clamp":
            top = float(torch.finfo(dtype).max) if dtype.is_floating_point else 2.0**62
            low, high = (self.number(max(min(end, top), -top), dtype) for end in numbers)
            return do("Min", do("Max", x[0], low), high)
        if code == "lerp":
            return do("Add", x[0], do("Mul", x[2], do("Sub", x[1], x[0])))
        if code == "remainder":
            if not dtype.is_floating_point:
                return do("Mod", *x)
            return do("Sub", x[0], do("Mul", x[1], do("Floor", do("Div", *x))))
        raise LoweringError(f"the ONNX export does not know the operation {code}.")

    def weights(self, tensor: Tensor) -> str:
        """Return known numbers as they are."""
        return self.constant(tensor.contiguous().numpy())

    def linear(self, op: Op) -> None:
        """A linear layer, what it adds, and its activation."""
        rows, inputs, outputs = op.size[:3]
        (out, x, packed), (bias, _, others) = op.first(3), [*op.operands[3:], None][:3]
        matrix = self.lowering.value(packed).transpose(0, 1).reshape(inputs, -1)[:, :outputs]  # of panels
        given = self.read(x)
        given = given if rows == 1 else self.reshape(given, (inputs,))
        parts = [given, self.weights(matrix)]
        if bias is not None:
            parts.append(self.weights(self.lowering.value(bias).reshape(-1)))
        made = self.node("Gemm", parts, torch.float32)
        made = made if rows == 1 else self.reshape(made, (rows * outputs,))
        if others is not None:
            made = self.node("Add", [made, self.read(others)], torch.float32)
        if CODES[op.code] != "copy":
            made = self.apply(CODES[op.code], [made], [torch.float32], torch.float32, (0.0, 0.0))
        self.write(out, made)

    def norm(self, op: Op) -> None:
        """Layer normalisation."""
        rows, width = op.size[:2]
        (out, x), (weight, bias) = op.first(2), op.operands[2:4]
        given = self.cast(self.read(x), out.dtype)
        given = given if rows == 1 else self.reshape(given, (width,))
        scale = torch.ones(width, dtype=out.dtype) if weight is None else self.lowering.value(weight)
        parts = [given, self.weights(scale.to(out.dtype).reshape(-1))]
        if bias is not None:
            parts.append(self.weights(self.lowering.value(bias).to(out.dtype).reshape(-1)))
        made = self.node("LayerNormalization", parts, out.dtype, axis=-1, epsilon=op.numbers[0])
        self.write(out, made if rows == 1 else self.reshape(made, (rows * width,)))

    def scan(self, op: Op) -> None:
        """One item into a running softmax."""
        heads, width, decay_stride = op.size[:3]
        (new, output, _, score, value), log_decay = op.first(5), op.operands[5]
        dtype = new.dtype
        m, u, w = (self.read(part) for part in op.parts)
        s, v = (self.cast(self.read(part), dtype) for part in (score, value))
        real = None if op.mask is None else self.cast(self.read(op.mask), torch.bool)
        lowest, zero = self.number(float(torch.finfo(dtype).min), dtype), self.number(0.0, dtype)

        def do(kind: str, *parts: str) -> str:
            return self.node(kind, parts, dtype)

        cube = (heads, width)
        w = self.reshape(self.full(w, heads * width), cube)
        if log_decay is not None:
            decay = self.cast(self.read(_view(log_decay, (heads,), (decay_stride,))), dtype)
            if real is not None:
                decay = do("Where", real, decay, zero)
            m = do("Max", do("Add", m, decay), lowest)
            is_known = self.lowering.is_constant(log_decay)
            if not is_known or not self.lowering.value(log_decay).isfinite().all():
                is_reset = self.node("IsInf", [decay], torch.bool)
                u = do("Where", is_reset, zero, self.full(u, heads))
                w = do("Where", self.reshape(self.full(is_reset, heads), (heads, 1)), zero, w)
        if real is not None:
            s = do("Where", real, s, lowest)
        top = do("Max", m, s)
        kept, taken = do("Exp", do("Sub", m, top)), do("Exp", do("Sub", s, top))
        if real is not None:
            taken = do("Where", real, taken, zero)
        seen = do("Add", do("Mul", u, kept), taken)
        old = do("Mul", w, self.reshape(self.full(kept, heads), (heads, 1)))
        v = self.reshape(self.full(v, heads * width), cube)
        total = do("Add", old, do("Mul", v, self.reshape(taken, (heads, 1))))
        divisor = seen
        if real is not None:  # a prefix of nothing: 0 / 1
            is_empty = self.node("Equal", [seen, zero], torch.bool)
            divisor = do("Where", is_empty, self.number(1.0, dtype), seen)
        mean = do("Div", total, self.reshape(divisor, (heads, 1)))
        self.write(output, self.flat(mean, cube))
        sizes, start = (heads, heads, heads * width), new.offset
        for part, size in zip((top, seen, self.flat(total, cube)), sizes, strict=True):
            self.write(Ref(new.storage, start, (size,), (1,), dtype), part)
            start += size

    def gather(self, op: Op) -> None:
        """Rows of a table."""
        out, table, index = op.first(3)
        count, inner, rows = op.size[0], op.size[1:], int(op.numbers[0])
        numel = int(np.prod(inner))
        chosen = self.cast(self.read(_view(index, (count,), (op.strides[2][0],))), torch.int64)  # (b, count)
        if not self.lowering.is_constant(index):
            chosen = self.known_row(chosen, count, rows, wraps=bool(op.code))
        picked = _view(table, (rows, *inner), op.strides[1])
        if self.lowering.is_constant(table):
            held = self.weights(self.lowering.value(picked).reshape(rows, numel))
            made = self.node("Gather", [held, chosen], table.dtype, axis=0)  # (b, count, n)
        else:
            cube = self.reshape(self.read(picked), (rows, numel))
            places = self.reshape(chosen, (count, 1))
            places = self.node("Expand", [places, self.whole(1, count, numel)], torch.int64)
            made = self.node("GatherElements", [cube, places], table.dtype, axis=1)
        self.write(_view(out, op.size, op.strides[0]), self.flat(made, (count, numel)))

    def known_row(self, index: str, count: int, rows: int, *, wraps: bool) -> str:
        """Refuse items whose rows there are not, and return rows that there are."""
        low, high = (self.number(end, torch.int64) for end in (-rows if wraps else 0, rows - 1))
        inside = self.node("Max", [self.node("Min", [index, high], torch.int64), low], torch.int64)
        is_there = self.node("Equal", [inside, index], torch.bool)
        self._checks.append((self.all(is_there, count), BAD_INDEX))
        return inside

    def over_last(self, op: Op) -> str:
        """Return (b, outer, length) of what an operation over the last of four axes reads."""
        view = _view(op.first(2)[1], op.size, op.strides[1])
        return self.reshape(self.full(self.read(view), view.numel), (math.prod(op.size[:3]), op.size[3]))

    def reduce(self, op: Op) -> None:
        """Over the last of four axes."""
        out, given = op.first(1)[0], self.over_last(op)
        if REDUCTIONS[op.code] == "argmax":
            made = self.node("ArgMax", [given], torch.int64, axis=2, keepdims=0)
        else:
            kind = {"sum": "ReduceSum", "mean": "ReduceMean", "all": "ReduceMin"}[REDUCTIONS[op.code]]
            dtype = torch.float32 if kind == "ReduceMin" else out.dtype
            made = self.node(kind, [self.cast(given, dtype), self.whole(2)], dtype, keepdims=0)
        self.write(_view(out, op.size[:3], op.strides[0][:3]), made)

    def softmax(self, op: Op) -> None:
        """Over the last of four axes; code 1: the logarithm."""
        (out,) = op.first(1)
        kind = "LogSoftmax" if op.code else "Softmax"
        made = self.node(kind, [self.cast(self.over_last(op), out.dtype)], out.dtype, axis=2)
        self.write(_view(out, op.size, op.strides[0]), self.flat(made, (math.prod(op.size[:3]), op.size[3])))

    def matmul(self, op: Op) -> None:
        """Products of (batches, i, k) and (batches, k, j)."""
        out, x, z = op.first(3)
        batches, rows, columns, inner = op.size
        (ob, oi, oj, _), (xb, xi, _, xk), (zb, _, zj, zk) = op.strides
        left = _view(x, (batches, rows, inner), (xb, xi, xk))
        right = _view(z, (batches, inner, columns), (zb, zk, zj))
        pair = [
            self.reshape(self.full(self.cast(self.read(view), out.dtype), view.numel), view.shape)
            for view in (left, right)
        ]
        made = self.node("MatMul", pair, out.dtype)
        self.write(
            _view(out, (batches, rows, columns), (ob, oi, oj)), self.flat(made, (batches, rows, columns))
        )

    def require(self, op: Op) -> None:
        """Refuse items."""
        (fine,) = op.first(1)
        self._checks.append((self.all(self.read(fine), fine.numel), op.code))


def _view(ref: Ref, shape: Sequence[int], strides: Sequence[int]) -> Ref:
    """Return another view that begins where a tensor does."""
    return ref._replace(shape=tuple(shape), strides=tuple(strides))


def _places(ref: Ref) -> NDArray[np.int64]:
    """Return where the numbers of a tensor lie in its storage, in order.

    >>> _places(Ref(0, 1, (2, 2), (4, 1), torch.float32)).tolist()
    [1, 2, 5, 6]
    """
    axes = np.indices(ref.shape, np.int64).reshape(len(ref.shape), -1)
    return ref.offset + np.array(ref.strides, np.int64) @ axes
