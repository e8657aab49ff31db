"""`aaren check`: is this installation right on this device, and how fast is it?

Every backend and mixer is compared with the definition (`naive`, in float64, on the CPU): outputs, gradients
and the last items taken one by one. Then come a few ratios of times, each of two things measured in turn.
"""

import copy
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor, nn

from aaren.engine.record import machine, now, strict_json, versions
from aaren.errors import ConfigError
from aaren.files.atomic import write_text
from aaren.nn import Encoder, EncoderConfig
from aaren.nn.block import MIXERS
from aaren.ops import scan_attention
from aaren.ops.dispatch import BACKENDS, HOMES, VARIABLE
from aaren.stream.session import Session

LENGTH, FIRST_STEP = 130, 124  # items of a sequence; from where on they are taken one by one
REPEATS = 7
# Sums are float64, but products in a block of float32 are rounded to 6e-8 each, results in bfloat16 to 4e-3;
# in two layers every projection and norm rounds too.
SCAN_LIMITS = {torch.float64: 1e-9, torch.float32: 4e-6, torch.bfloat16: 1e-2}
MIXER_LIMITS = {torch.float64: 1e-9, torch.float32: 5e-5}


@dataclass(kw_only=True)
class Check:
    """One backend or mixer, in every dtype."""

    name: str
    errors: dict[str, float] = field(default_factory=dict)  # by dtype, relative to the largest number
    verdict: str = "right"  # or wrong, or skipped
    reason: str = ""  # why it was skipped, or what was raised


def check(device: str, *, json_file: Path | None = None) -> bool:
    """Check a device, print the errors and a few ratios of times, and tell whether nothing is wrong.

    Args:
        device: cpu, cuda or mps.
        json_file: Where to write the results as well.
    """
    place = find_device(device)
    console = Console(highlight=False)
    with console.status("checking"):
        checks = [*check_backends(place), *check_mixers(place)]
    console.print(errors_table(checks, place))
    for row in checks:
        if row.reason:
            console.print(f"{escape(row.name)} {row.verdict}: {escape(row.reason)}")
    with console.status("measuring"):
        ratios = measure(place)
    console.print("\n[bold]How fast: ratios of times, both measured here in turn[/]")
    for what, ratio in ratios.items():
        console.print(f"{ratio:8.3g}x  {what}")
    is_right = all(row.verdict != "wrong" for row in checks)
    if json_file is not None:
        content: dict[str, object] = {
            "kind": "check",
            "date": now(),
            "device": str(place),
            "is_right": is_right,
        }
        content |= {"versions": versions(), "machine": machine(), "ratios": ratios}
        content["checks"] = [asdict(row) for row in checks]
        write_text(json_file, strict_json(content, indent=1) + "\n")
    return is_right


def errors_table(checks: Sequence[Check], device: torch.device) -> Table:
    """Show the largest error of every backend and mixer, by dtype."""
    title = f"Largest error on {device}, relative to the largest number"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    names = [dtype_name(dtype) for dtype in SCAN_LIMITS]
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("")
    for row in checks:
        cells = [f"{row.errors[name]:.0e}" if name in row.errors else "" for name in names]
        style = {"wrong": "bold red", "skipped": "dim", "right": ""}[row.verdict]
        table.add_row(row.name, *cells, row.verdict, style=style)
    for kind, limits in (("scans", SCAN_LIMITS), ("mixers", MIXER_LIMITS)):
        cells = [f"{limits[dtype]:.0e}" if dtype in limits else "" for dtype in SCAN_LIMITS]
        table.add_row(f"at most ({kind})", *cells, "", style="dim")
    return table


def dtype_name(dtype: torch.dtype) -> str:
    """Return float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


def find_device(name: str) -> torch.device:
    """Return a device that can be computed on, or say which there are."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"there is no device {name!r} here ({reason}). Use cpu, cuda or mps.") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device must be cpu, cuda or mps; got {name!r}.")
    return device


def check_backends(device: torch.device) -> Iterator[Check]:
    """Compare every backend with the definition, in every dtype of the device."""
    for name in BACKENDS:
        home = HOMES.get(name, device.type)
        if home != device.type:
            yield Check(name=name, verdict="skipped", reason=f"runs on {home} only")
        else:
            yield attempt(name, SCAN_LIMITS, partial(backend_error, name, device), device)


def check_mixers(device: torch.device) -> Iterator[Check]:
    """Compare two layers of every mixer with the same in float64, in every dtype of the device."""
    for name in (*MIXERS, "aaren, decay"):
        yield attempt(name, MIXER_LIMITS, partial(mixer_error, name, device), device)


def attempt(
    name: str, limits: Mapping[torch.dtype, float], run: Callable[[torch.dtype], float], device: torch.device
) -> Check:
    """Check one thing in every dtype; one that raises is wrong, and the others still run."""
    row = Check(name=name)
    for dtype, limit in limits.items():
        if device.type == "mps" and dtype == torch.float64:
            continue
        try:
            error = row.errors[dtype_name(dtype)] = run(dtype)
        except Exception as fault:  # whatever a device, a driver or a compiler may raise
            row.verdict, row.reason = "wrong", f"{type(fault).__name__}: {fault}".splitlines()[0]
        else:
            row.verdict = row.verdict if error <= limit else "wrong"  # NaN is beyond every limit
    return row


def difference(results: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference, relative to the largest expected number.

    >>> difference([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0])])
    0.25
    """
    pairs = [(a.detach().cpu().double(), b.detach().double()) for a, b in zip(results, expected, strict=True)]
    scale = max([1e-6, *(b.abs().max().item() for _, b in pairs)])
    return max(torch.nan_to_num((a - b).abs(), nan=torch.inf).max().item() for a, b in pairs) / scale


def backend_error(name: str, device: torch.device, dtype: torch.dtype) -> float:
    """Compare a backend with the definition: plain; with a mask, decay and a reset; with scores of 1e4."""
    generator = torch.Generator().manual_seed(0)
    scores, values = (torch.randn(2, LENGTH, *size, generator=generator).to(dtype) for size in ((2,), (2, 8)))
    mask = torch.rand(2, LENGTH, generator=generator) > 0.3
    log_decay = -torch.rand(2, LENGTH, 2, generator=generator).to(dtype)
    log_decay[:, 40] = -torch.inf
    jumps = (1e4 * torch.randn(scores.shape, generator=generator).round()).to(dtype)
    errors = []
    cases: Sequence[dict[str, Any]] = (
        {"scores": scores, "values": values},
        {"scores": scores, "values": values, "mask": mask, "log_decay": log_decay},
        {"scores": scores + jumps, "values": values, "mask": mask},
    )
    for case in cases:
        exact = scan({key: x.double() if x.is_floating_point() else x for key, x in case.items()}, "naive")
        tested = scan({key: x.to(device) for key, x in case.items()}, name)
        errors += [difference(tested[:1], exact[:1]), difference(tested[1:], exact[1:])]
        state, steps = None, []
        with torch.no_grad():
            for start, stop in [(0, FIRST_STEP), *((k, k + 1) for k in range(FIRST_STEP, LENGTH))]:
                piece: dict[str, Any] = {key: x[:, start:stop].to(device) for key, x in case.items()}
                outputs, state = scan_attention(**piece, initial_state=state, backend=name)
                steps.append(outputs)
        errors.append(difference([torch.cat(steps[1:], 1)], [exact[0][:, FIRST_STEP:]]))
    return max(errors)


def scan(case: dict[str, Any], backend: str) -> list[Tensor]:
    """Return the outputs of a scan and the gradients of their weighted sum."""
    leaves = {key: x.detach().requires_grad_(x.is_floating_point()) for key, x in case.items()}
    outputs, _ = scan_attention(**leaves, backend=backend)
    return [outputs, *gradients(outputs, [leaf for leaf in leaves.values() if leaf.requires_grad])]


def gradients(outputs: Tensor, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients of a sum of the outputs with the same random weights on every device."""
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1)).to(outputs)
    return torch.autograd.grad((outputs * weights).sum(), inputs)


def mixer_error(name: str, device: torch.device, dtype: torch.dtype) -> float:
    """Compare two layers with themselves in float64, whose scans are the definition."""
    mixer, _, decay = name.partition(", ")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exact, x = small_encoder(mixer, 16, decay="learned" if decay else None), torch.randn(2, LENGTH, 16)
    tested, x = copy.deepcopy(exact).to(device, dtype), x.to(dtype)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "naive"
    try:
        expected = outputs_and_gradients(exact.double(), x.double())
    finally:
        os.environ.pop(VARIABLE) if before is None else os.environ.update({VARIABLE: before})
    results = outputs_and_gradients(tested, x.to(device))
    with torch.no_grad():
        _, state = tested(x[:, :FIRST_STEP].to(device))
        steps = []
        for item in x[:, FIRST_STEP:].to(device).unbind(1):
            output, state = tested.step(item, state)
            steps.append(output)
    return max(
        difference(results[:1], expected[:1]),
        difference(results[1:], expected[1:]),
        difference([torch.stack(steps, 1)], [expected[0][:, FIRST_STEP:]]),
    )


def small_encoder(mixer: str, width: int, *, decay: Literal["learned"] | None = None) -> Encoder:
    """Return two layers with random weights and without dropout."""
    return Encoder(
        EncoderConfig(width=width, num_heads=4, num_layers=2, dropout=0.0, mixer=mixer, decay=decay)
    )


def outputs_and_gradients(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Return what a module makes of sequences, and the gradients of its parameters."""
    outputs, _ = module(x)
    return [outputs, *gradients(outputs, [weight for weight in module.parameters() if weight.requires_grad])]


def measure(device: torch.device) -> dict[str, float]:
    """Return ratios of median times, each of two calls in turn."""
    values = torch.randn(4, 1024, 8, 64, device=device, requires_grad=True)
    scores = torch.randn(4, 1024, 8, device=device, requires_grad=True)
    weights = torch.randn_like(values)

    def scan_pass(backend: str) -> None:
        outputs, _ = scan_attention(scores, values, backend=backend)
        torch.autograd.grad(outputs, (scores, values), weights)

    def attention_pass() -> None:
        query = values.transpose(1, 2)
        outputs = F.scaled_dot_product_attention(query, query, query, is_causal=True)
        torch.autograd.grad(outputs, values, weights.transpose(1, 2))

    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "causal softmax attention / Aaren's scan, 1,024 items, forward and backward": (
            attention_pass,
            partial(scan_pass, "auto"),
        ),
        "a training step of two layers of width 64, 1,024 items: Transformer / Aaren": (
            training_step("softmax", device),
            training_step("aaren", device),
        ),
    }
    if device.type == "cuda":
        name = "scan on this card: chunked / Triton (export AAREN_BACKEND=triton to use it)"
        pairs[name] = (partial(scan_pass, "chunked"), partial(scan_pass, "triton"))
    if device.type == "cpu":
        folded = Encoder(EncoderConfig(width=64, num_heads=4, num_layers=4)).eval().fold()
        item = torch.randn(64)
        torch_session, native_session = (Session(folded, engine=name) for name in ("torch", "native"))
        name = "one item of a stream, four layers of width 64: PyTorch / native engine"
        pairs[name] = (partial(torch_session.push, item), partial(native_session.push, item))
    return {name: time_ratio(*calls, device) for name, calls in pairs.items()}


def training_step(mixer: str, device: torch.device) -> Callable[[], object]:
    """Return a training step of an encoder."""
    encoder = small_encoder(mixer, 64).to(device)
    optimiser, x = torch.optim.Adam(encoder.parameters()), torch.randn(4, 1024, 64, device=device)

    def step() -> None:
        optimiser.zero_grad()
        encoder(x)[0].square().mean().backward()
        optimiser.step()

    return step


def time_ratio(slow: Callable[[], object], fast: Callable[[], object], device: torch.device) -> float:
    """Return the ratio of the median times of two calls, taken in turn."""
    seconds: dict[Callable[[], object], list[float]] = {slow: [], fast: []}
    for turn in range(1 + REPEATS):  # the first warms up
        for call, samples in seconds.items():
            begin = time.perf_counter()
            call()
            if device.type != "cpu":
                getattr(torch, device.type).synchronize()
            if turn:
                samples.append(time.perf_counter() - begin)
    return statistics.median(seconds[slow]) / statistics.median(seconds[fast])
