"""Lower a recorded step to operations of the C runtime, one rule for each of torch's.

What they become, with memory of their own, is the task of `assemble`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aaren.export.program import CODES, PANEL, REDUCTIONS, TYPES, Op, contiguous_strides
from aaren.export.record import REQUIRE, SCAN, LoweringError, Node, Recording, Ref
from aaren.ops.tracing import BAD_INDEX

UNARY = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tanh": "tanh",
    "sigmoid": "sigmoid", "log_sigmoid_forward": "log_sigmoid", "relu": "relu", "silu": "silu", "abs": "abs",
    "floor": "floor", "isnan": "isnan", "bitwise_not": "not", "clone": "copy", "_to_copy": "copy",
}  # fmt: skip
BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "maximum": "maximum", "eq": "eq", "ne": "ne",
    "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "bitwise_and": "and", "bitwise_or": "or",
    "remainder": "remainder",
}  # fmt: skip


class Lowering:
    """The operations of a recording, and the constants that they need."""

    def __init__(self, recording: Recording, *, is_int8: bool = False) -> None:
        self.recording = recording
        self.is_int8 = is_int8
        self.ops: list[Op] = []
        self.next_storage = 1 + max(recording.tensors, default=0)
        self.own_constants: dict[int, Tensor] = {}
        self.node: Node | None = None

    def lower_nodes(self) -> None:
        """Lower all nodes."""
        recording = self.recording
        for node in recording.nodes:
            self.node = node
            for ref in node.outputs:
                if ref.dtype not in TYPES:
                    raise self.unsupported(f"{ref.dtype} numbers")
            self.lower_node(node)
        self.node = None
        for ref in [*recording.inputs, *recording.states]:
            if ref.dtype not in TYPES:
                raise self.unsupported(f"{ref.dtype} numbers")

    def lower_node(self, node: Node) -> None:
        """Find the rule of an operation."""
        if node.name == SCAN:
            self.scan(node)
            return
        if node.name == REQUIRE:
            fine = self.contiguous(node.args[0])
            self.ops.append(Op("require", [fine], (fine.numel, 0, 0, 0), code=node.args[1], num_written=0))
            return
        base, overload = node.name.split(".")[1:3]
        if base.startswith("bitwise_") and node.outputs[0].dtype != torch.bool:
            raise self.unsupported(f"the operation aten.{base} on bits of numbers")
        if base in UNARY:
            self.elementwise(UNARY[base], node.outputs[0], [node.args[0]])
        elif base == "pow" and node.args[1] == 2:
            self.elementwise("mul", node.outputs[0], [node.args[0], node.args[0]])
        elif base == "neg":
            self.elementwise("mul", node.outputs[0], [node.args[0], -1.0])
        elif base == "rsub":
            self.binary("sub", node, [node.args[1], node.args[0]])
        elif base in BINARY:
            self.binary(BINARY[base], node, list(node.args[:2]))
        elif base in REDUCTIONS:
            self.reduction(base, node)
        else:
            rule: Callable[[Node], None] | None = getattr(self, f"lower_{base}", None)
            if rule is None:
                raise self.unsupported(f"the operation aten.{base}.{overload}; it knows {supported()}")
            rule(node)

    def unsupported(self, what: str) -> LoweringError:
        """Build the error that names what cannot be lowered and where it comes from."""
        where = "" if self.node is None else f" (used at {self.node.where})"
        return LoweringError(
            f"the native engine does not know {what}{where}. Use engine='torch', or write the step with "
            f"operations that it knows."
        )

    # Elementwise operations

    def elementwise(
        self, code: str, out: Ref, operands: Sequence[Any], numbers: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        """Add an elementwise operation; operands are broadcast, and may be numbers."""
        if not out.numel:
            return
        refs = [self.operand(operand, out.dtype) for operand in operands]
        strides = [out.strides] + [_broadcast(ref, out.shape) for ref in refs]
        size, kept = _collapse(out.shape, strides)
        if len(size) > 4:
            raise self.unsupported(f"{len(size)} axes that cannot be joined")
        pad = 4 - len(size)
        self.ops.append(
            Op(
                "elementwise",
                [out, *refs],
                (1,) * pad + size,
                [(0,) * pad + stride for stride in kept],
                CODES.index(code),
                numbers,
            )
        )

    def operand(self, given: Any, dtype: torch.dtype) -> Ref:
        """Return a tensor, or the place of a number."""
        if isinstance(given, Ref):
            return given
        number = float(given)
        held = dtype if dtype == torch.float32 else torch.float64
        return self.constant(torch.tensor(number, dtype=held))

    def constant(self, tensor: Tensor) -> Ref:
        """Return the place of numbers that the lowering brings."""
        storage = self.next_storage
        self.next_storage += 1
        self.own_constants[storage] = tensor.contiguous()
        return Ref(storage, 0, tuple(tensor.shape), contiguous_strides(tensor.shape), tensor.dtype)

    def temporary(self, shape: Sequence[int], dtype: torch.dtype) -> Ref:
        """Return a new place for results."""
        storage = self.next_storage
        self.next_storage += 1
        return Ref(storage, 0, tuple(shape), contiguous_strides(shape), dtype)

    def contiguous(self, ref: Ref, dtype: torch.dtype | None = None) -> Ref:
        """Return the same numbers end to end, in another type if asked."""
        dtype = dtype or ref.dtype
        if ref.dtype == dtype and (ref.is_contiguous):
            return ref
        if self.is_constant(ref):
            return self.constant(self.value(ref).to(dtype))
        copied = self.temporary(ref.shape, dtype)
        self.elementwise("copy", copied, [ref])
        return copied

    def is_constant(self, ref: Ref) -> bool:
        """Tell whether numbers are known now."""
        return ref.storage in self.own_constants or (
            ref.storage in self.recording.tensors and ref.storage not in self.recording.produced
        )

    def value(self, ref: Ref) -> Tensor:
        """Return the numbers of a constant."""
        tensor = self.own_constants.get(ref.storage)
        if tensor is None:
            tensor = self.recording.tensors[ref.storage]
        if tensor.dtype != ref.dtype:
            tensor = torch.empty(0, dtype=ref.dtype).set_(tensor.untyped_storage())
        return tensor.detach().as_strided(ref.shape, ref.strides, ref.offset)

    def binary(self, code: str, node: Node, operands: list[Any]) -> None:
        alpha = node.kwargs.get("alpha", 1)
        if alpha != 1:
            raise self.unsupported("alpha= of an addition")
        if node.kwargs.get("rounding_mode") is not None:
            raise self.unsupported("a division with rounding_mode")
        self.elementwise(code, node.outputs[0], operands)

    def lower_floor_divide(self, node: Node) -> None:
        ratio = self.temporary(node.outputs[0].shape, torch.float64)
        self.elementwise("div", ratio, list(node.args[:2]))
        self.elementwise("floor", ratio, [ratio])
        self.elementwise("copy", node.outputs[0], [ratio])

    def lower_gelu(self, node: Node) -> None:
        if node.kwargs.get("approximate", "none") != "none":
            raise self.unsupported("gelu by tanh")
        self.elementwise("gelu", node.outputs[0], [node.args[0]])

    def lower_softplus(self, node: Node) -> None:
        if len(node.args) > 1 and node.args[1] != 1:
            raise self.unsupported("softplus with a beta")
        self.elementwise("softplus", node.outputs[0], [node.args[0]])

    def lower_where(self, node: Node) -> None:
        self.elementwise("where", node.outputs[0], node.args)

    def lower_masked_fill(self, node: Node) -> None:
        x, mask, value = node.args
        self.elementwise("where", node.outputs[0], [mask, value, x])

    def lower_clamp(self, node: Node) -> None:
        low, high = ([*node.args[1:], None, None])[:2]
        low = node.kwargs.get("min", low)
        high = node.kwargs.get("max", high)
        if isinstance(low, Ref) or isinstance(high, Ref):
            raise self.unsupported("clamp with tensors as bounds")
        bounds = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
        self.elementwise("clamp", node.outputs[0], [node.args[0]], bounds)

    def lower_lerp(self, node: Node) -> None:
        self.elementwise("lerp", node.outputs[0], node.args)

    # Moving numbers

    def lower_cat(self, node: Node) -> None:
        out, start = node.outputs[0], 0
        dim = (node.args[1] if len(node.args) > 1 else 0) % len(out.shape)
        for part in node.args[0]:
            if not part.numel:
                continue
            shape = (*out.shape[:dim], part.shape[dim], *out.shape[dim + 1 :])
            place = Ref(out.storage, out.offset + start * out.strides[dim], shape, out.strides, out.dtype)
            self.elementwise("copy", place, [part])
            start += part.shape[dim]

    def lower_stack(self, node: Node) -> None:
        out = node.outputs[0]
        dim = (node.args[1] if len(node.args) > 1 else 0) % len(out.shape)
        for number, part in enumerate(node.args[0]):
            shape, strides = (pair[:dim] + pair[dim + 1 :] for pair in (out.shape, out.strides))
            place = Ref(out.storage, out.offset + number * out.strides[dim], shape, strides, out.dtype)
            self.elementwise("copy", place, [part])

    def gather(self, out: Ref, table: Ref, dim: int, index: Ref, wraps: bool) -> None:
        """Pick along one axis of a table; the index has one axis, or is one number."""
        count = index.numel
        before, after = table.shape[:dim], table.shape[dim + 1 :]
        index = self.contiguous(index)
        # The result's axes: those before, those of the index, those after.
        places = len(index.shape)
        out_index_stride = out.strides[dim + places - 1] if places else 0
        if places > 1 and not out.is_contiguous:
            raise self.unsupported("an index of several axes")
        others = [
            *((size, out.strides[at], table.strides[at]) for at, size in enumerate(before)),
            *(
                (size, out.strides[dim + places + at], table.strides[dim + 1 + at])
                for at, size in enumerate(after)
            ),
        ]
        size, (own, theirs) = _collapse(
            [o[0] for o in others], [[o[1] for o in others], [o[2] for o in others]]
        )
        if len(size) > 3:
            raise self.unsupported("an index into a tensor of so many axes")
        pad = 3 - len(size)
        self.ops.append(
            Op(
                "gather",
                [out, table, index],
                (count, *(1,) * pad, *size),
                [
                    (out_index_stride, *(0,) * pad, *own),
                    (table.strides[dim], *(0,) * pad, *theirs),
                    (1, 0, 0, 0),
                ],
                int(wraps),
                (float(table.shape[dim]), 0.0),
            )
        )

    def lower_embedding(self, node: Node) -> None:
        self.gather(node.outputs[0], node.args[0], 0, node.args[1], wraps=False)

    def lower_index(self, node: Node) -> None:
        table, indices = node.args
        given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
        if len(given) != 1 or given[0][1].dtype != torch.int64:
            raise self.unsupported("an index by several tensors, or by a mask")
        dim, index = given[0]
        self.gather(node.outputs[0], table, dim, index, wraps=True)

    def lower_gather(self, node: Node) -> None:
        """Pick single numbers: a place in the whole table is the index times its stride, and the rest."""
        table, dim, index = node.args[:3]
        dim %= len(table.shape)
        out = self.flat_view(node.outputs[0])
        if all(size == 1 for at, size in enumerate(table.shape) if at != dim):
            column = Ref(table.storage, table.offset, (table.shape[dim],), (table.strides[dim],), table.dtype)
            self.gather(out, column, 0, self.flat(index), wraps=False)
            return
        self.require_below(index, table.shape[dim])  # on its own axis: a place in the table is not enough
        span = 1 + sum((size - 1) * step for size, step in zip(table.shape, table.strides, strict=True))
        offsets = torch.zeros(index.shape, dtype=torch.int64)
        for at, size in enumerate(index.shape):
            if at != dim:
                steps = torch.arange(size) * table.strides[at]
                offsets += steps.view(*[-1 if axis == at else 1 for axis in range(len(index.shape))])
        place = self.temporary(index.shape, torch.int64)
        self.elementwise("mul", place, [index, table.strides[dim]])
        self.elementwise("add", place, [place, self.constant(offsets)])
        whole = Ref(table.storage, table.offset, (span,), (1,), table.dtype)
        self.gather(out, whole, 0, self.flat(place), wraps=False)

    def require_below(self, index: Ref, size: int) -> None:
        """Refuse items with an index that is not from 0 to size - 1."""
        is_above, is_below, fine = (self.temporary(index.shape, torch.bool) for _ in range(3))
        self.elementwise("ge", is_above, [index, self.constant(torch.tensor(0))])
        self.elementwise("lt", is_below, [index, self.constant(torch.tensor(size))])
        self.elementwise("and", fine, [is_above, is_below])
        self.ops.append(Op("require", [fine], (fine.numel, 0, 0, 0), code=BAD_INDEX, num_written=0))

    def flat_view(self, ref: Ref) -> Ref:
        """Return a result that lies end to end with one axis."""
        if not ref.is_contiguous:
            raise self.unsupported("a result that does not lie end to end")
        return Ref(ref.storage, ref.offset, (ref.numel,), (1,), ref.dtype)

    # Sums and products

    def linear(self, out: Ref, x: Ref, weight: Ref, bias: Ref | None) -> None:
        """Add y = x W + b, W (inputs, outputs)."""
        inputs, outputs = weight.shape
        rows = x.numel // inputs
        is_plain = self.is_constant(weight) and weight.dtype == torch.float32 and x.dtype == torch.float32
        if not is_plain or (bias is not None and not self.is_constant(bias)):
            self.matmul(out, x, weight, bias)
            return
        matrix = self.value(weight)
        panels = -(-outputs // PANEL)
        padded = torch.zeros(inputs, panels * PANEL)
        held, scales = None, None
        if bias is not None:
            held = self.contiguous(bias)
            if held.shape != (outputs,):
                held = self.constant(self.value(held).expand(outputs).contiguous())
        if self.is_int8:
            scale = matrix.abs().amax(0).clamp(min=1e-20) / 127.0
            padded[:, :outputs] = (matrix / scale).round()
            scales = self.constant(scale)
            held = None if held is None else self.constant(self.value(held) / scale)  # scaled with the sums
        else:
            padded[:, :outputs] = matrix
        packed = padded.view(inputs, panels, PANEL).transpose(0, 1).contiguous()
        place = self.constant(packed.to(torch.int8) if self.is_int8 else packed)
        self.ops.append(
            Op("linear", [out, self.contiguous(x), place, held, scales], (rows, inputs, outputs, 0))
        )

    def matmul(self, out: Ref, x: Ref, weight: Ref, bias: Ref | None) -> None:
        """Add a general product of (b, i, k) and (b, k, j), batch axes broadcast or none."""

        def batched(ref: Ref) -> tuple[tuple[int, ...], tuple[int, ...]]:
            pad = 3 - len(ref.shape)
            return (1,) * pad + ref.shape, (0,) * pad + ref.strides

        (x_shape, x_stride), (w_shape, w_stride), (_, out_stride) = map(batched, (x, weight, out))
        self.ops.append(
            Op(
                "matmul",
                [out, x, weight],
                (max(x_shape[0], w_shape[0]), x_shape[1], w_shape[2], x_shape[2]),
                [
                    (*out_stride, 0),
                    (x_stride[0], x_stride[1], 0, x_stride[2]),
                    (w_stride[0], 0, w_stride[2], w_stride[1]),
                ],
            )
        )
        if bias is not None:
            self.elementwise("add", out, [out, bias])

    def lower_addmm(self, node: Node) -> None:
        bias, x, weight = node.args
        if node.kwargs.get("beta", 1) != 1 or node.kwargs.get("alpha", 1) != 1:
            raise self.unsupported("addmm with factors")
        self.linear(node.outputs[0], x, weight, bias)

    def lower_mm(self, node: Node) -> None:
        self.linear(node.outputs[0], node.args[0], node.args[1], None)

    def lower_bmm(self, node: Node) -> None:
        x, weight = node.args
        if x.shape[0] == 1:
            flat = Ref(weight.storage, weight.offset, weight.shape[1:], weight.strides[1:], weight.dtype)
            rows = Ref(x.storage, x.offset, x.shape[1:], x.strides[1:], x.dtype)
            out = node.outputs[0]
            self.linear(
                Ref(out.storage, out.offset, out.shape[1:], out.strides[1:], out.dtype), rows, flat, None
            )
        else:
            self.matmul(node.outputs[0], x, weight, None)

    def lower_native_layer_norm(self, node: Node) -> None:
        x, shape, weight, bias, epsilon = node.args
        width = math.prod(shape)
        out = node.outputs[0]
        operands = [out, self.contiguous(x), weight, bias]
        self.ops.append(Op("norm", operands, (x.numel // width, width, 0, 0), numbers=(float(epsilon), 0.0)))

    def reduce(self, kind: str, code: int, out: Ref, x: Ref, dims: Sequence[int]) -> None:
        """Add a reduction over some axes, which become the last one."""
        dims = [dim % len(x.shape) for dim in dims] if dims else list(range(len(x.shape)))
        outer = [dim for dim in range(len(x.shape)) if dim not in dims]
        size, (stride,) = _collapse([x.shape[dim] for dim in dims], [[x.strides[dim] for dim in dims]])
        if len(size) > 1:
            x = self.contiguous(x)
            size, (stride,) = _collapse([x.shape[dim] for dim in dims], [[x.strides[dim] for dim in dims]])
            if len(size) > 1:
                raise self.unsupported("a sum over axes that do not lie together")
        shape = [x.shape[dim] for dim in outer]
        keeps = len(out.shape) == len(x.shape)
        own = [out.strides[dim] for dim in outer] if keeps else list(out.strides)
        length, step = (size[0], stride[0]) if size else (1, 0)
        kept, (to, from_) = _collapse(shape, [own, [x.strides[dim] for dim in outer]])
        if len(kept) > 3:
            raise self.unsupported("a sum over one of so many axes")
        pad = 3 - len(kept)
        last = out.strides[dims[0]] if kind == "softmax" else 0
        self.ops.append(
            Op(
                kind,
                [out, x],
                (*(1,) * pad, *kept, length),
                [(*(0,) * pad, *to, last), (*(0,) * pad, *from_, step)],
                code,
            )
        )

    def reduction(self, name: str, node: Node) -> None:
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        dims = [] if dims is None else dims if isinstance(dims, list | tuple) else [dims]
        self.reduce("reduce", REDUCTIONS.index(name), node.outputs[0], node.args[0], dims)

    def lower_var(self, node: Node) -> None:
        """Add the mean of squared distances from the mean; torch divides by fewer than all by default."""
        x, out = node.args[0], node.outputs[0]
        dims = node.args[1] if len(node.args) > 1 and node.args[1] is not None else range(len(x.shape))
        dims = [dim % len(x.shape) for dim in dims]
        count = math.prod(x.shape[dim] for dim in dims)
        given = node.kwargs.get("correction")
        given = 1.0 if given is None else float(given)
        shape = tuple(1 if dim in dims else size for dim, size in enumerate(x.shape))
        mean, apart = self.temporary(shape, x.dtype), self.temporary(x.shape, x.dtype)
        self.reduce("reduce", REDUCTIONS.index("mean"), mean, x, dims)
        self.elementwise("sub", apart, [x, mean])
        self.elementwise("mul", apart, [apart, apart])
        self.reduce("reduce", REDUCTIONS.index("mean"), out, apart, dims)
        if given:
            self.elementwise("mul", out, [out, count / (count - given)])

    def lower__softmax(self, node: Node) -> None:
        self.reduce("softmax", 0, node.outputs[0], node.args[0], [node.args[1]])

    def lower__log_softmax(self, node: Node) -> None:
        self.reduce("softmax", 1, node.outputs[0], node.args[0], [node.args[1]])

    def scan(self, node: Node) -> None:
        """Add one item of a running softmax; its state lies end to end, m, u, w."""
        m, u, w, score, value, mask, log_decay = node.args
        output, new_m = node.outputs[:2]
        heads, width = m.numel, w.shape[-1]
        if not self.lie_together(m, u, w):
            joined = self.temporary((2 * heads + w.numel,), m.dtype)
            start = 0
            for part in (m, u, w):
                place = Ref(joined.storage, start, (part.numel,), (1,), joined.dtype)
                self.elementwise("copy", place, [self.flat(part)])
                start += part.numel
            m = joined
        decay_stride = 1
        if log_decay is not None:
            shape = node.args[0].shape
            log_decay = log_decay._replace(shape=shape, strides=_broadcast(log_decay, shape))
            is_row = math.prod(shape[:-1]) == 1  # then one stride says where all of them lie
            log_decay = log_decay if is_row and self.is_constant(log_decay) else self.contiguous(log_decay)
            decay_stride = log_decay.strides[-1]
        new = Ref(new_m.storage, 0, (2 * heads + w.numel,), (1,), m.dtype)
        self.ops.append(
            Op(
                "scan",
                [new, output, m, self.contiguous(score), self.contiguous(value), log_decay],
                (heads, width, decay_stride, 0),
                code=int(mask is not None),
                mask=mask,
                num_written=2,
                parts=node.args[:3],
            )
        )

    def flat(self, ref: Ref) -> Ref:
        """Return a tensor with one axis."""
        ref = self.contiguous(ref)
        return Ref(ref.storage, ref.offset, (ref.numel,), (1,), ref.dtype)

    def lie_together(self, *parts: Ref) -> bool:
        """Tell whether tensors follow each other in memory: in one storage, or as neighbours in the state."""
        if not all(part.is_contiguous for part in parts):
            return False
        states = self.recording.states
        if all(part in states for part in parts):
            first = states.index(parts[0])
            return list(parts) == states[first : first + len(parts)]
        places = [part.offset for part in parts]
        ends = [part.offset + part.numel for part in parts]
        return len({part.storage for part in parts}) == 1 and places[1:] == ends[:-1]


def supported() -> str:
    """Return the names of torch's operations that can be lowered."""
    rules = {name.removeprefix("lower_") for name in vars(Lowering) if name.startswith("lower_")}
    names = {*UNARY, *BINARY, *REDUCTIONS, *rules, "neg", "rsub", "square"} - {"node", "nodes"}
    return ", ".join(sorted(name.strip("_") for name in names))


def _broadcast(ref: Ref, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides under which a tensor has another shape."""
    pad = len(shape) - len(ref.shape)
    strides = [0] * pad + list(ref.strides)
    sizes = [1] * pad + list(ref.shape)
    if pad < 0:
        strides, sizes = strides[-pad:], sizes[-pad:]
    return tuple(
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(sizes, strides, shape, strict=True)
    )


def _collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Leave out axes of one and join those that lie together in all operands.

    >>> _collapse((2, 1, 3), [(3, 3, 1), (0, 0, 1)])
    ((2, 3), [(3, 1), (0, 1)])
    >>> _collapse((2, 1, 3), [(3, 3, 1)])
    ((6,), [(1,)])
    """
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        own = [stride[dim] for stride in strides]
        if sizes and all(part[-1] == step * size for part, step in zip(kept, own, strict=True)):
            sizes[-1] *= size
            for part, step in zip(kept, own, strict=True):
                part[-1] = step
        else:
            sizes.append(size)
            for part, step in zip(kept, own, strict=True):
                part.append(step)
    return tuple(sizes), [tuple(part) for part in kept]
