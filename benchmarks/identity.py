"""Show that a change of structure changed no number: run at two commits, compare bit for bit.

    python benchmarks/identity.py write before.json     # in the environment of the old commit
    python benchmarks/identity.py write after.json      # in that of the new one
    python benchmarks/identity.py compare before.json after.json
    python benchmarks/identity.py stamp after.json results 2027-01-31  # runs since then

`stamp` writes identity.json, which says for each setting and model what this code computes, into a folder of
results, and into the lines of runs that ended since the date. The report calls all other runs stale.

Compared are outputs, final states and gradients of every mixer (same seed, every bit), metrics and weights of
one smoke run of every setting and model, and the tables that `aaren report` draws from the committed records.
Only public names are used, so that the file runs at both commits.
"""

import dataclasses
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from aaren.nn import Encoder, EncoderConfig

REPOSITORY = Path(__file__).parent.parent
SMOKE = {  # a setting's dataset for smoke runs, and its models
    "forecasting": (
        "seasonal",
        (
            *("aaren", "transformer", "naive-last", "naive-seasonal", "linear", "linear-336"),
            *("streaming", "streaming-carried", "lagged-base"),
        ),
    ),
    "classification": (
        "JapaneseVowels",
        (
            *("aaren", "transformer", "aaren-causal", "transformer-causal", "aaren-features"),
            *("majority", "dtw", "minirocket"),
        ),
    ),
    "events": ("hawkes", ("aaren", "transformer", "gru", "aaren-decay", "poisson", "renewal", "markov")),
    "rl": ("pendulum", ("aaren", "transformer", "behaviour", "random")),
}
MIXERS = ("aaren", "softmax", "gru", "lstm", "wkv", "linear", "retnet", "mingru")


def digest(tensors: Iterable[Tensor]) -> str:
    """Hash the bits of tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(str(tuple(tensor.shape)).encode())
        total.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def tensors_in(value: object) -> Iterator[Tensor]:
    """Walk through tensors in nested tuples, lists, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


def passed(model: nn.Module, call: Callable[[], object]) -> dict[str, str]:
    """Hash what a call gives, and every gradient of its mean square."""
    result = call()
    found = [tensor for tensor in tensors_in(result) if tensor.is_floating_point()]
    sum(tensor.double().square().mean() for tensor in found if tensor.requires_grad).backward()  # type: ignore[union-attr]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return {"outputs": digest(found), "gradients": digest(gradients), "count": str(len(gradients))}


def modules() -> dict[str, dict[str, str]]:
    """Pass random sequences through encoders of every mixer, and step them folded."""
    results = {}
    for mixer in MIXERS:
        for norm, decay in (("post", None), ("pre", "learned" if mixer == "aaren" else None)):
            torch.manual_seed(0)
            name = f"encoder {mixer} {norm} decay={decay}"
            try:
                config = EncoderConfig(
                    width=16, num_heads=4, num_layers=2, mixer=mixer, norm=norm, decay=decay, dropout=0.1
                )
            except ValueError:  # an old commit may not have it
                results[name] = {"outputs": "no such mixer"}
                continue
            encoder = Encoder(config)
            x, mask = torch.randn(3, 33, 16), torch.rand(3, 33) > 0.2
            results[name] = passed(encoder, partial(encoder, x, mask=mask))
            with torch.no_grad():
                folded = encoder.eval().fold()
                state, outputs = folded.init_state(3), []
                for item, real in zip(x.unbind(1), mask.unbind(1), strict=True):
                    output, state = folded.step(item, state, mask=real)
                    outputs.append(output)
                results[f"{name} folded steps"] = {"outputs": digest(outputs)}
                results[f"{name} state"] = {"numbers": digest(tensors_in(state))}
    return results


def smoke_runs() -> dict[str, object]:
    """Train one smoke run of every setting and model by the command line; keep metrics and curves."""
    results: dict[str, object] = {}
    for setting, (dataset, names) in SMOKE.items():
        for model in names:
            with tempfile.TemporaryDirectory() as folder:
                done = aaren(
                    "train", setting, dataset, "--model", model, "--profile", "smoke", "--out", folder
                )
                record = next(Path(folder).rglob("record.json"), None)
                if record is None:
                    results[f"{setting} {model}"] = done.stderr.strip().splitlines()[-1:]
                    continue
                content = json.loads(record.read_text())
                weights = [load_file(path) for path in sorted(record.parent.glob("model/*.safetensors"))]
                results[f"{setting} {model}"] = {
                    "metrics": content["metrics"],
                    "weights": [digest(dict(sorted(tensors.items())).values()) for tensors in weights],
                }
            print(setting, model, file=sys.stderr)
    return results


def report_tables() -> list[str]:
    """Draw the report of the committed records and return its Markdown tables."""
    with tempfile.TemporaryDirectory() as folder:
        aaren("report", str(REPOSITORY / "results"), "-o", folder, check=True)
        return (Path(folder) / "tables.md").read_text().splitlines()


def aaren(*arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the command line of this environment."""
    command = [sys.executable, "-m", "aaren", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check)


def flattened(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Give every leaf of nested JSON its path."""
    pairs = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    )
    if pairs is None:
        yield path, value
    else:
        for key, item in pairs:
            yield from flattened(item, f"{path}/{key}")


def compare(before: Path, after: Path) -> int:
    """Print every difference; return how many there are."""
    old, new = (dict(flattened(json.loads(path.read_text()))) for path in (before, after))
    different = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    for key in different:
        print(f"{key}\n  before: {old.get(key, 'absent')}\n  after:  {new.get(key, 'absent')}")
    print(f"{len(old)} values before, {len(new)} after, {len(different)} differ.")
    return len(different)


def identities(content: Mapping[str, Any]) -> dict[str, str]:
    """Return one digest per setting and model, of the smoke runs that succeeded."""
    return {
        name: hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16]
        for name, run in content["smoke"].items()
        if isinstance(run, dict)
    }


def stamp(content: Mapping[str, Any], results: Path, since: str) -> int:
    """Write the digests into a folder of results, and into its runs since then; return how many those are."""
    from aaren.engine.record import parse_record  # here, because older commits do not have it
    from aaren.files.atomic import write_text
    from aaren.lab.records import IDENTITIES, RUNS

    digests, count = identities(content), 0
    (results / IDENTITIES).write_text(json.dumps(digests, indent=1) + "\n")
    for path in results.glob(f"*/{RUNS}"):
        records = [parse_record(line) for line in path.read_text().splitlines()]
        for index, record in enumerate(records):
            digest = digests.get(f"{record.setting} {record.cell['model']}")
            if record.date >= since and digest is not None:
                records[index], count = replace(record, identity=digest), count + 1
        write_text(path, "".join(f"{record.to_json()}\n" for record in records))
    return count


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"] and len(sys.argv) == 4:
        sys.exit(1 if compare(Path(sys.argv[2]), Path(sys.argv[3])) else 0)
    if sys.argv[1:2] == ["stamp"] and len(sys.argv) == 5:
        print(stamp(json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3]), sys.argv[4]), "runs")
    elif sys.argv[1:2] == ["write"] and len(sys.argv) == 3:
        torch.set_num_threads(1)
        content = {"modules": modules(), "report": report_tables(), "smoke": smoke_runs()}
        Path(sys.argv[2]).write_text(json.dumps(content, indent=1))
    else:
        print(__doc__)
        sys.exit(2)
