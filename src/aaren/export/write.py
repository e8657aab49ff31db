"""Export a trained stream: C sources, WebAssembly or ONNX, and a manifest of what goes in and comes out.

The C that is written is the runtime that also runs the native engine, and the model's program as tables.
"""

import json
import keyword
import re
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aaren.errors import (
    ConfigError,
    DataError,
    MissingDependencyError,
    unknown_name,
)
from aaren.export import onnx
from aaren.export.artifact import WEIGHTS_FILE, compare
from aaren.export.compile import NativeStep, compile_step
from aaren.export.program import Program
from aaren.export.whole import Exportable, WholeStep, find_whole_step
from aaren.files.atomic import write_bytes, write_text
from aaren.nn.blocks import FORMAT_VERSION, HEAD, Layout, Leaf, name_of
from aaren.nn.state import convert
from aaren.version import __version__

TARGETS = ("c", "wasm", "onnx")
WEIGHTS = ("float32", "int8")
STATES = {"f64": torch.float64, "f32": torch.float32}
SPARE_STACK = 1 << 16  # bytes of WebAssembly's stack, for all but the blocks of a step
TOLERANCE = 1e-5  # of the largest difference from torch, in units of the largest answer or 1
C_TYPES = {torch.float32: "float", torch.float64: "double", torch.int64: "int64_t", torch.bool: "uint8_t"}
TYPED_ARRAYS = {
    torch.float32: "Float32Array",
    torch.float64: "Float64Array",
    torch.int64: "BigInt64Array",
    torch.bool: "Uint8Array",
}
C_WORDS = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|"
    "register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|"
    "while|class|template|this|new|delete|namespace|bool|true|false"
)


@dataclass
class Exported:
    """What was written, and how far it is from torch."""

    folder: Path
    files: list[str]
    manifest: dict[str, Any]
    step: NativeStep
    largest_difference: float | None = None
    loss: float | None = None  # mean difference, of the largest answer


def export_stream(
    model: nn.Module | Exportable,
    folder: str | Path,
    *,
    to: str = "c",
    example: Tensor | None = None,
    weights: str = "float32",
    state: str = "f64",
    weights_file: bool = False,
    check: NDArray[np.float64] | None = None,
) -> Exported:
    """Write a model's stream as an artifact that needs neither Python nor torch.

    Args:
        model: a model with a stream, or a fitted estimator.
        folder: where the files go; it is made if need be.
        to: "c", "wasm" or "onnx".
        example: one item of a model of your own, (1, ...).
        weights: "float32", or "int8" with a scale per row.
        state: "f64", or "f32", which halves it and is for short streams.
        weights_file: of C, whether the weights go into `weights.bin`, which the caller loads.
        check: rows (n, numbers of all inputs end to end) to replay through torch and the artifact.
    """
    for kind, given, known in (
        ("target", to, TARGETS),
        ("weights", weights, WEIGHTS),
        ("state", state, STATES),
    ):
        if given not in known:
            raise unknown_name(kind, given, known)
    if weights_file and to != "c":
        raise ConfigError(f"weights in a file of their own are for c; {to} is one file already.")
    if weights != "float32" and to == "onnx":
        raise ConfigError(
            "--weights int8 is for c and wasm: onnxruntime quantises a float32 model by itself."
        )
    whole = find_whole_step(model, example=example)
    whole.state = convert(whole.state, dtype=torch.float32) if state == "f32" else whole.state
    folder = Path(folder)
    inputs = list(whole.inputs.values())
    step = compile_step(whole.run, inputs, whole.state, largest=whole.largest, weights=weights)
    program = step.program
    leaves = [leaf.detach() for leaf in pytree.tree_leaves(whole.state)]
    manifest = describe(whole, program, to=to, weights=weights)
    if weights_file:
        manifest["weights_file"] = WEIGHTS_FILE
    if to == "onnx":
        folder.mkdir(parents=True, exist_ok=True)
        onnx.write_onnx(folder / onnx.FILE, whole, manifest)
        written = [onnx.FILE]
    else:
        written = _write_c(folder, whole, program, step.layout, leaves, has_file=weights_file)
    if to == "wasm":
        written += _write_wasm(folder, whole, program)
    write_text(folder / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    exported = Exported(folder, [*written, "manifest.json"], manifest, step)
    if check is not None:
        exported.largest_difference, exported.loss = compare(whole, folder, program, check, to=to)
        if weights == "float32" and exported.largest_difference > TOLERANCE:
            raise DataError(
                f"the artifact differs from torch by {exported.largest_difference:.2g} of the largest "
                f"answer, more than {TOLERANCE}: do not use it, and report the model."
            )
    return exported


def describe(whole: WholeStep, program: Program, *, to: str, weights: str) -> dict[str, Any]:
    """Return what a user of the artifact has to know."""

    def part(names: Sequence[str], leaves: Sequence[Leaf]) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "shape": list(leaf.shape),
                "type": str(leaf.dtype).removeprefix("torch."),
                "offset": leaf.offset,
                **({"names": whole.names[name]} if name in whole.names else {}),
                **({"note": whole.notes[name]} if name in whole.notes else {}),
            }
            for name, leaf in zip(names, leaves, strict=True)
        ]

    return {
        "format_version": FORMAT_VERSION,
        "aaren_version": __version__,
        "to": to,
        "fingerprint": whole.fingerprint,
        "weights": weights,
        "weight_bytes": len(program.weights),
        "state_bytes": program.state_bytes + HEAD.size,
        "stack_bytes": stack_bytes(program),
        "largest_input": whole.largest,
        "inputs": part(list(whole.inputs), program.inputs),
        "outputs": part(whole.outputs, program.outputs),
    }


def stack_bytes(program: Program) -> int:
    """Return what a step of exported C keeps on the stack: what it computes, its input and its output."""
    return program.scratch_bytes + program.input_bytes + program.output_bytes + 16


def weights_block(whole: WholeStep, program: Program) -> tuple[bytes, int]:
    """Return the weights behind a head like that of a state, and its checksum."""
    content = _padded(program.weights)
    fields = (b"AARW", FORMAT_VERSION, name_of(whole.fingerprint), 0, len(content), 0)
    checksum = zlib.crc32(content, zlib.crc32(HEAD.pack(*fields, 0, 0)))
    return HEAD.pack(*fields, checksum, 0) + content, checksum


def identifier(name: str) -> str:
    """Return a name as C, Python and JavaScript allow it.

    >>> identifier("row 1; int x"), identifier("while"), identifier("2nd")
    ('row_1__int_x', 'while_', '_2nd')
    """
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not found or found[0].isdigit():
        found = "_" + found
    return f"{found}_" if C_WORDS.fullmatch(found) or keyword.iskeyword(found) else found


def c_string(text: str) -> str:
    r"""Return a text as a C literal that holds its UTF-8 bytes, whatever they are.

    >>> print(c_string('a"\n?'))
    "a\042\012\077"
    """
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.,:/()+=")
    encoded = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in encoded) + '"'


def _number(value: float) -> str:
    return {float("inf"): "INFINITY", float("-inf"): "-INFINITY"}.get(value) or float(value).hex()


def _member(name: str, leaf: Leaf) -> str:
    count = f"[{leaf.count}]" if leaf.shape else ""
    return f"  {C_TYPES[leaf.dtype]} {identifier(name)}{count};"


def _write_c(
    folder: Path, whole: WholeStep, program: Program, layout: Layout, leaves: list[Tensor], *, has_file: bool
) -> list[str]:
    """Write sources, an example, a Makefile and a wrapper for Python."""
    native = resources.files("aaren.export")
    files = {
        "aaren_runtime.h": (native / "runtime.h").read_text(encoding="utf-8"),
        "aaren_runtime.c": (native / "runtime.c").read_text(encoding="utf-8"),
        "aaren_model.h": _header(whole, program, has_file=has_file),
        "aaren_model.c": _tables(whole, program, layout, leaves, has_file=has_file),
        "main.c": _template("main.c.txt"),
        "Makefile": _template("Makefile.txt"),
        "CMakeLists.txt": _template("CMakeLists.txt"),
        "library.properties": _template("library.properties.txt"),
        "aaren_model.py": _template("wrapper.py.txt"),
    }
    files["aaren_runtime.c"] = files["aaren_runtime.c"].replace('"runtime.h"', '"aaren_runtime.h"')
    if has_file:
        for name in ("Makefile", "CMakeLists.txt"):
            files[name] = files[name].replace("aaren_weights.c ", "")
    else:
        files["aaren_weights.c"] = _weights(program.weights)
    for name, text in files.items():
        write_text(folder / name, text)
    for name in {"aaren_weights.c", WEIGHTS_FILE} - files.keys():
        (folder / name).unlink(missing_ok=True)  # of another export
    if has_file:
        write_bytes(folder / WEIGHTS_FILE, weights_block(whole, program)[0])
    return [*files, *[WEIGHTS_FILE] * has_file]


def _template(name: str) -> str:
    return (resources.files("aaren.export") / "templates" / name).read_text(encoding="utf-8")


def _header(whole: WholeStep, program: Program, *, has_file: bool) -> str:
    inputs = "\n".join(_member(*pair) for pair in zip(whole.inputs, program.inputs, strict=True))
    outputs = "\n".join(_member(*pair) for pair in zip(whole.outputs, program.outputs, strict=True))
    counts = "\n".join(
        f"extern const char *const aaren_names_{identifier(name)}[{len(names)}];"
        for name, names in whole.names.items()
        if names
    )
    return _template("aaren_model.h.txt").format(
        inputs=inputs,
        outputs=outputs,
        names=counts,
        state_bytes=program.state_bytes + HEAD.size,
        fingerprint=c_string(whole.fingerprint),
        weights_file=f"#define AAREN_WEIGHT_BYTES {len(_padded(program.weights)) + HEAD.size} "
        f"/* of weights.bin */\n" * has_file,
        given="const void *weights, " * has_file,
        check_weights="/* Once, after weights.bin was read or mapped to a place aligned to 8: AAREN_OK, or "
        "AAREN_BAD_WEIGHTS. */\nint aaren_check_weights(const void *weights, size_t bytes);\n" * has_file,
    )


def _tables(
    whole: WholeStep, program: Program, layout: Layout, leaves: list[Tensor], *, has_file: bool
) -> str:
    def braces(values: Sequence[object]) -> str:
        return "{" + ", ".join(map(str, values)) + "}"

    rows = []
    for op in program.ops:
        places = [f"{int(value)}u" for value in op["at"]]
        strides = [braces([int(value) for value in stride]) for stride in op["stride"]]
        parts = [
            int(op["kind"]),
            int(op["code"]),
            braces([int(value) for value in op["type"]]),
            braces(places),
            braces([int(value) for value in op["size"]]),
            braces(strides),
            braces([_number(float(value)) for value in op["number"]]),
        ]
        rows.append(f"  {braces(parts)},")

    def checks(table: NDArray[Any]) -> str:
        found = [
            f"  {{{int(row['offset'])}u, {int(row['count'])}u, {int(row['type'])}u, "
            f"{_number(float(row['low']))}, {_number(float(row['high']))}}},"
            for row in table
        ]
        return "\n".join(found) or "  {0u, 0u, 0u, 0.0, 0.0},"

    image = bytearray(program.state_bytes)
    for leaf, tensor in zip(program.states, leaves, strict=True):
        content = tensor.contiguous().numpy().tobytes()
        image[leaf.offset : leaf.offset + len(content)] = content
    labels = "\n".join(
        f"const char *const aaren_names_{identifier(name)}[{len(names)}] = "
        f"{braces([c_string(str(text)) for text in names])};"
        for name, names in whole.names.items()
        if names
    )
    inputs, outputs = program.input_fields(), program.output_fields()
    check = _template("weights_file.c.txt").format(weight_sum=f"0x{weights_block(whole, program)[1]:08x}u")
    return _template("aaren_model.c.txt").format(
        ops="\n".join(rows),
        num_ops=len(program.ops),
        inputs=checks(inputs),
        num_inputs=len(inputs),
        outputs=checks(outputs),
        num_outputs=len(outputs),
        image=_runs(bytes(image)),
        state_bytes=program.state_bytes,
        input_bytes=program.input_bytes,
        output_bytes=program.output_bytes,
        scratch_bytes=program.scratch_bytes,
        output_at=program.output_at,
        fingerprint=f"0x{name_of(whole.fingerprint):016x}",
        layout=f"0x{layout.checksum:08x}u",
        labels=labels,
        weights="" if has_file else "extern const uint32_t aaren_weights[];",
        check_weights=check * has_file,
        given="const void *weights, " * has_file,
        weights_at="weights ? (const unsigned char *)weights + sizeof(header) : NULL"
        if has_file
        else "(const unsigned char *)aaren_weights",
        fits="weights_fit(weights) ? AAREN_BAD_WEIGHTS : " * has_file,
    )


def _runs(content: bytes) -> str:
    """Return bytes as 32-bit words, little end first: a count of zeros, of others, these, and so on.

    >>> _runs(bytes(12) + bytes([7, 0, 0, 0]) + bytes(4))
    '3u,1u,0x7u,1u,0u'
    """
    words = np.frombuffer(content + b"\0" * (-len(content) % 4), "<u4")
    borders = np.flatnonzero(np.diff(words != 0, prepend=False)).tolist()
    parts, end = [], 0
    for begin, after in zip(borders[::2], [*borders[1::2], len(words)], strict=False):
        parts += [f"{begin - end}u", f"{after - begin}u", *(f"0x{word:x}u" for word in words[begin:after])]
        end = after
    if end < len(words) or not parts:
        parts += [f"{len(words) - end}u", "0u"]
    return ",".join(parts)


def _padded(weights: bytes) -> bytes:
    return weights + b"\0" * (-len(weights) % 32)


def _weights(content: bytes) -> str:
    words = np.frombuffer(_padded(content), "<u4")
    lines = [
        ",".join(f"0x{word:x}u" for word in words[start : start + 12]) for start in range(0, len(words), 12)
    ]
    return _template("aaren_weights.c.txt").format(words=",\n".join(lines) or "0u", count=max(1, len(words)))


def _write_wasm(folder: Path, whole: WholeStep, program: Program) -> list[str]:
    """Compile the sources with zig and write an ES module around them."""
    try:
        import ziglang  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError("WebAssembly needs: pip install 'aaren[export]'") from error
    zig = Path(ziglang.__file__).parent / "zig"
    functions = (
        "aaren_state_bytes",
        "aaren_init",
        "aaren_step",
        "aaren_reset",
        "aaren_check",
        "aaren_seal",
        "malloc",
    )
    stack = SPARE_STACK + -(-stack_bytes(program) // 16) * 16
    command = [
        str(zig), "cc", "-target", "wasm32-wasi", "-mexec-model=reactor", "-msimd128", "-Os", "-s",
        "-ffp-contract=off", "-fno-math-errno", "-Wl,--strip-all", f"-Wl,-z,stack-size={stack}",
        *(f"-Wl,--export={name}" for name in functions),
        *(str(folder / name) for name in ("aaren_model.c", "aaren_weights.c", "aaren_runtime.c")),
        "-o", str(folder / "aaren_model.wasm"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"ziglang could not compile the model: {done.stderr.strip()[-2000:]}")

    def fields(names: Sequence[str], leaves: Sequence[Leaf]) -> str:
        rows = [
            {"name": name, "offset": leaf.offset, "count": leaf.count, "type": TYPED_ARRAYS[leaf.dtype]}
            for name, leaf in zip(names, leaves, strict=True)
        ]
        return json.dumps(rows)

    def types(names: Sequence[str], leaves: Sequence[Leaf]) -> str:
        return "\n".join(
            f"  {json.dumps(name)}: {'bigint[]' if leaf.dtype == torch.int64 else 'number[]'} | "
            f"{TYPED_ARRAYS[leaf.dtype]};"
            for name, leaf in zip(names, leaves, strict=True)
        )

    values = {
        "INPUTS": fields(list(whole.inputs), program.inputs),
        "OUTPUTS": fields(whole.outputs, program.outputs),
        "INPUT_BYTES": str(max(8, program.input_bytes)),
        "OUTPUT_BYTES": str(max(8, program.output_bytes)),
        "INPUT_TYPES": types(list(whole.inputs), program.inputs),
        "OUTPUT_TYPES": types(whole.outputs, program.outputs),
    }
    for name in ("aaren_model.js", "aaren_model.d.ts"):
        text = _template(f"{name}.txt")
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        write_text(folder / name, text)
    write_bytes(folder / "package.json", b'{"type": "module"}\n')
    return ["aaren_model.wasm", "aaren_model.js", "aaren_model.d.ts", "package.json"]
