"""Behaviour policies as plain arrays: small networks from observation to action.

A policy is `<name>.npz` with `<name>.json` beside it. Arrays: `W0, b0, W1, b1, ...` (y = W x + b); optional
`obs_mean, obs_std` (x <- (x - mean) / std, then clipped to ±`obs_clip`); for random actions `log_std`, or
`W_logstd, b_logstd` (from the last hidden layer, clipped to [-20, 2]). In the JSON: `hidden_activation`
("tanh", "relu" or "none"), `output` ("tanh" squashes, "clip[-1,1]" clips), `obs_clip` and `env`. A series
holds snapshots of one training run under keys such as `it080/W0`; `series.npz@it080` names one.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.numbers import narrow, reals
from aaren.errors import DataError, unknown_name
from aaren.files import npz
from aaren.files.archive import content_sha256, parsing

Floats = NDArray[np.float64]
ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "tanh": np.tanh,
    "relu": lambda hidden: np.maximum(hidden, 0.0),
    "none": lambda hidden: hidden,
}
OUTPUTS: dict[str, Callable[[Floats], Floats]] = {
    "tanh": np.tanh,
    "clip[-1,1]": lambda action: np.clip(action, -1.0, 1.0),
}
ANT_OBSERVATION, ANT_PADDED = 27, 111  # old Ant policies expect 84 contact forces, which were always 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Policy:
    """A feed-forward policy in float64; `act` takes many observations at once."""

    name: str
    description: dict[str, Any]  # the JSON beside the arrays
    arrays: dict[str, Floats]
    sha256: str  # of the file

    @property
    def num_layers(self) -> int:
        """Number of layers, the last one included."""
        return sum(f"W{place}" in self.arrays for place in range(len(self.arrays)))

    @property
    def is_random(self) -> bool:
        """Whether actions can be drawn, not only their mean be taken."""
        return bool(self.arrays.keys() & {"log_std", "W_logstd"})

    def act(self, observations: Floats, *, rng: np.random.Generator | None = None) -> Floats:
        """Choose actions in [-1, 1] for observations (n, size); without `rng` their means."""
        arrays, activation = self.arrays, ACTIVATIONS[self.description["hidden_activation"]]
        hidden = self._prepare(observations)
        for place in range(self.num_layers - 1):
            hidden = activation(hidden @ arrays[f"W{place}"].T + arrays[f"b{place}"])
        action = hidden @ arrays[f"W{self.num_layers - 1}"].T + arrays[f"b{self.num_layers - 1}"]
        if rng is not None:
            action = action + self._std(hidden) * rng.standard_normal(action.shape)
        return OUTPUTS[self.description["output"]](action)

    def _prepare(self, observations: Floats) -> Floats:
        size, expected = observations.shape[1], self.arrays["W0"].shape[1]
        if (size, expected) == (ANT_OBSERVATION, ANT_PADDED):
            observations = np.pad(observations, ((0, 0), (0, expected - size)))
        elif size != expected:
            raise DataError(f"policy {self.name} takes {expected} numbers; the environment gives {size}.")
        if "obs_mean" in self.arrays:
            observations = (observations - self.arrays["obs_mean"]) / self.arrays["obs_std"]
        clip = self.description.get("obs_clip")
        return observations if clip is None else np.clip(observations, -clip, clip)

    def _std(self, hidden: Floats) -> Floats:
        if "W_logstd" in self.arrays:
            log_std = hidden @ self.arrays["W_logstd"].T + self.arrays["b_logstd"]
            return np.exp(np.clip(log_std, -20.0, 2.0))
        if "log_std" not in self.arrays:
            raise DataError(f"policy {self.name} has mean actions only.")
        return np.exp(self.arrays["log_std"])


def load(path: str | Path) -> Policy:
    """Load a policy, or one snapshot of a series as `file.npz@it080`."""
    text, _, snapshot = str(path).partition("@")
    file = Path(text)
    arrays, description = npz.load(file), _describe(file)
    snapshots = sorted({key.partition("/")[0] for key in arrays if "/" in key})
    if snapshots or snapshot:
        if snapshot not in snapshots:
            raise unknown_name(f"snapshot of {file.name}", snapshot, snapshots)
        prefix = f"{snapshot}/"
        arrays = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    numbers: dict[str, Floats] = {}
    for key, array in arrays.items():
        narrow(array, name=f"{file}: {key}")
        numbers[key] = reals(array, name=f"{file}: {key}")
    if "W0" not in numbers:
        raise DataError(f"{file}: expected an array 'W0'; it holds {', '.join(sorted(numbers)) or 'none'}.")
    name = file.stem + (f"@{snapshot}" if snapshot else "")
    return Policy(name=name, description=description, arrays=numbers, sha256=content_sha256(file))


def _describe(file: Path) -> dict[str, Any]:
    path = file.with_suffix(".json")
    if not path.is_file():
        raise DataError(f"{file}: the description {path.name} should lie beside it.")
    with parsing(path, "the description of a policy"):
        description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key, allowed in (("hidden_activation", ACTIVATIONS), ("output", OUTPUTS)):
            if description[key] not in allowed:
                raise DataError(
                    f"{path}: {key!r} must be one of {', '.join(allowed)}; got {description[key]!r}."
                )
    return description
