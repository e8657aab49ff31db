"""`aaren check`: is this installation right on this device, and how fast is it?

Every backend and mixer is compared with the definition (`naive`, in float64, on the CPU): outputs, gradients
and the last items taken one by one. Then come a few ratios of times, each of two things measured in turn.
"""

import copy
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.markup import escape
from torch import Tensor

from aaren.engine.record import machine, now, versions
from aaren.errors import ConfigError
from aaren.files.atomic import write_text
from aaren.files.strict_json import strict_json
from aaren.nn import Encoder
from aaren.nn.block import MIXERS
from aaren.ops import scan_attention
from aaren.ops.dispatch import BACKENDS, HOMES, VARIABLE
from aaren.stream.session import Session
from aaren.table import print_table

LENGTH, FIRST_STEP, REPEATS = 130, 124, 7  # items of a sequence; from where on they are taken one by one
# Sums are float64, but products in a block of float32 are rounded to 6e-8 each, results in bfloat16 to 4e-3;
# in two layers every projection and norm rounds too.
SCAN_LIMITS = {torch.float64: 1e-9, torch.float32: 4e-6, torch.bfloat16: 1e-2}
MIXER_LIMITS = {torch.float64: 1e-9, torch.float32: 5e-5}
TRAINING = "training step, two layers of width 64, 1,024 items: Transformer / Aaren"
OPERATOR = "the operator alone, 1,024 items, forward and backward: causal softmax attention / Aaren's scan"
Call = Callable[[], object]


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
    try:
        place = torch.zeros(1, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"there is no device {device!r} here ({reason}). Use cpu, cuda or mps.") from error
    if json_file is not None:  # what cannot be written is refused now, not after a minute
        write_text(json_file, "{}\n")
    console, dtypes = Console(highlight=False), [str(dtype).removeprefix("torch.") for dtype in SCAN_LIMITS]
    with console.status("checking"):
        checks = list(checks_of(place, [*BACKENDS, *MIXERS, "aaren, decay"]))
    rows = []
    for row in checks:
        cells = (f"{row.errors[name]:.0e}" if name in row.errors else "" for name in dtypes)
        rows.append([row.name, *cells, row.verdict])
    print_table(["", *dtypes, ""], rows, title=f"Largest error on {place}, relative to the largest number")
    for row in (row for row in checks if row.reason):
        console.print(f"{escape(row.name)} {row.verdict}: {escape(row.reason)}")
    with console.status("measuring"):
        ratios = measure(place)
    console.print("\n[bold]How fast: ratios of times, both measured here in turn[/]")
    for what, ratio in ratios.items():
        console.print(f"{ratio:8.3g}x  {what}")
    is_right = all(row.verdict != "wrong" for row in checks)
    if json_file is not None:
        about = {"kind": "check", "date": now(), "device": str(place), "versions": versions()}
        results = {"is_right": is_right, "ratios": ratios, "checks": [asdict(row) for row in checks]}
        write_text(json_file, strict_json({**about, "machine": machine(), **results}, indent=1) + "\n")
    return is_right


def checks_of(device: torch.device, names: Sequence[str]) -> Iterator[Check]:
    """Compare backends and mixers with the definition in every dtype; the others run on if one raises."""
    for name in names:
        row, is_scan, home = Check(name=name), name in BACKENDS, HOMES.get(name, device.type)
        limits, error_of = (SCAN_LIMITS, backend_error) if is_scan else (MIXER_LIMITS, mixer_error)
        if home != device.type:
            limits, row.verdict, row.reason = {}, "skipped", f"runs on {home} only"
        for dtype, limit in limits.items():
            if device.type == "mps" and dtype == torch.float64:
                continue
            try:
                error = row.errors[str(dtype).removeprefix("torch.")] = error_of(name, device, dtype)
            except Exception as fault:  # whatever a device, a driver or a compiler may raise
                row.verdict, row.reason = "wrong", f"{type(fault).__name__}: {fault}".splitlines()[0]
            else:
                row.verdict = row.verdict if error <= limit else "wrong"  # NaN is beyond every limit
        yield row


def difference(results: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference, relative to the largest expected number.

    >>> difference([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0])])
    0.25
    """
    pairs = [(a.detach().cpu().double(), b.detach().double()) for a, b in zip(results, expected, strict=True)]
    scale = max([1e-6, *(b.abs().max().item() for _, b in pairs)])
    return max(torch.nan_to_num((a - b).abs(), nan=torch.inf).max().item() for a, b in pairs) / scale


def gradients(outputs: Tensor, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients of a sum of the outputs with the same random weights on every device."""
    weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1)).to(outputs)
    return torch.autograd.grad((outputs * weights).sum(), [leaf for leaf in inputs if leaf.requires_grad])


def backend_error(name: str, device: torch.device, dtype: torch.dtype) -> float:
    """Compare a backend with the definition: plain; with a mask, decay and a reset; with scores of 1e4."""
    generator = torch.Generator().manual_seed(0)
    scores, values = (torch.randn(2, LENGTH, *size, generator=generator).to(dtype) for size in ((2,), (2, 8)))
    mask = torch.rand(2, LENGTH, generator=generator) > 0.3
    log_decay = -torch.rand(2, LENGTH, 2, generator=generator).to(dtype)
    log_decay[:, 40] = -torch.inf
    jumps = (1e4 * torch.randn(scores.shape, generator=generator).round()).to(dtype)
    plain = {"scores": scores, "values": values}
    harder = {"mask": mask, "log_decay": log_decay}, {"scores": scores + jumps, "mask": mask}
    errors = []
    for case in (plain, *(plain | more for more in harder)):
        exact = scan({key: x.double() if x.is_floating_point() else x for key, x in case.items()}, "naive")
        moved: dict[str, Any] = {key: x.to(device) for key, x in case.items()}
        tested, state, steps = scan(moved, name), None, []
        with torch.no_grad():
            for part in torch.arange(LENGTH).tensor_split(tuple(range(FIRST_STEP, LENGTH))):
                piece = {key: x[:, part] for key, x in moved.items()}
                outputs, state = scan_attention(**piece, initial_state=state, backend=name)
                steps.append(outputs)
        errors += [difference(tested[:1], exact[:1]), difference(tested[1:], exact[1:])]
        errors.append(difference([torch.cat(steps, 1)], exact[:1]))
    return max(errors)


def scan(case: dict[str, Tensor], backend: str) -> list[Tensor]:
    """Return the outputs of a scan and the gradients of their weighted sum."""
    leaves: dict[str, Any] = {
        key: x.detach().requires_grad_(x.is_floating_point()) for key, x in case.items()
    }
    outputs, _ = scan_attention(**leaves, backend=backend)
    return [outputs, *gradients(outputs, list(leaves.values()))]


def mixer_error(name: str, device: torch.device, dtype: torch.dtype) -> float:
    """Compare two layers with themselves in float64, whose scans are the definition."""
    mixer, _, decay = name.partition(", ")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exact = Encoder(width=16, num_heads=4, dropout=0.0, mixer=mixer, decay="learned" if decay else None)
        x = torch.randn(2, LENGTH, 16).to(dtype)
    tested = copy.deepcopy(exact).to(device, dtype)
    outputs, _ = tested(x.to(device))
    slopes = gradients(outputs, list(tested.parameters()))
    with torch.no_grad():
        _, state = tested(x[:, :FIRST_STEP].to(device))
        steps = []
        for item in x[:, FIRST_STEP:].to(device).unbind(1):
            output, state = tested.step(item, state)
            steps.append(output)
    with mock.patch.dict(os.environ, {VARIABLE: "naive"}):
        expected, _ = exact.double()(x.double())
    late = difference([torch.stack(steps, 1)], [expected[:, FIRST_STEP:]])
    exact_slopes = gradients(expected, list(exact.parameters()))
    return max(difference([outputs], [expected]), difference(slopes, exact_slopes), late)


def measure(device: torch.device) -> dict[str, float]:
    """Return ratios of median times, each of two calls in turn."""
    values, weights = torch.randn(2, 4, 1024, 8, 64, device=device)
    scores, x = torch.randn(4, 1024, 8, device=device), torch.randn(4, 1024, 64, device=device)
    leaves, query = [scores.requires_grad_(), values.requires_grad_()], values.transpose(1, 2)

    def attention() -> None:
        outputs = F.scaled_dot_product_attention(query, query, query, is_causal=True)
        torch.autograd.grad(outputs, values, weights.transpose(1, 2), retain_graph=True)

    def scan_by(backend: str) -> None:
        torch.autograd.grad(scan_attention(*leaves, backend=backend)[0], leaves, weights)

    def training_step(mixer: str) -> Call:
        encoder = Encoder(width=64, num_heads=4, num_layers=2, dropout=0.0, mixer=mixer).to(device)
        optimiser = torch.optim.Adam(encoder.parameters())

        def step() -> None:
            optimiser.zero_grad()
            encoder(x)[0].square().mean().backward()
            optimiser.step()

        return step

    pairs: dict[str, tuple[Call, Call]] = {
        TRAINING: (training_step("softmax"), training_step("aaren")),
        OPERATOR: (attention, partial(scan_by, "auto")),
    }
    if device.type == "cuda":
        name = "scan on this card: chunked / Triton (export AAREN_BACKEND=triton to use it)"
        pairs[name] = (partial(scan_by, "chunked"), partial(scan_by, "triton"))
    if device.type == "cpu":
        folded, item = Encoder(width=64, num_heads=4, num_layers=4).eval().fold(), torch.randn(64)
        slow, fast = (partial(Session(folded, engine=name).push, item) for name in ("torch", "native"))
        pairs["one item of a stream, four layers of width 64: PyTorch / native engine"] = (slow, fast)
    return {name: time_ratio(*calls, device) for name, calls in pairs.items()}


def time_ratio(slow: Call, fast: Call, device: torch.device) -> float:
    """Return the ratio of the median times of two calls, taken in turn."""
    seconds: dict[Call, list[float]] = {slow: [], fast: []}
    for turn in range(1 + REPEATS):  # the first warms up
        for call, samples in seconds.items():
            begin = time.perf_counter()
            call()
            if device.type != "cpu":
                getattr(torch, device.type).synchronize()
            if turn:
                samples.append(time.perf_counter() - begin)
    return statistics.median(seconds[slow]) / statistics.median(seconds[fast])
