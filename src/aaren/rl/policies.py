"""Behaviour policies as plain arrays: small networks from observation to action.

A policy is `<name>.npz` with `<name>.json` beside it. Arrays: `W0, b0, W1, b1, ...` (y = W x + b); optional
`obs_mean, obs_std` (x <- (x - mean) / std, then clipped to ±`obs_clip`); for random actions `log_std`, or
`W_logstd, b_logstd` (from the last hidden layer, clipped to [-20, 2]). In the JSON: `hidden_activation`
("tanh", "relu" or "none"), `output` ("tanh" squashes, "clip[-1,1]" cuts), `obs_clip`, `env`, and
`time_feature` (true: 1 - t/1000 follows the observation). A series keeps snapshots of one training run under
keys such as `it080/W0`; `series.npz@it080` names one.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aaren.datasets.numbers import narrow, reals
from aaren.errors import DataError, unknown_name
from aaren.files import npz
from aaren.files.archive import noting_checksums, parsing, plain_name

_ACTIVATIONS = ("tanh", "relu", "none")
_OUTPUTS = ("tanh", "clip[-1,1]")
_ANT_OBSERVATION, _ANT_PADDED = 27, 111  # old Ant policies expect 84 contact forces, which were always 0
_EPISODE_STEPS = 1000.0  # what a time feature counts down over


@dataclass(frozen=True, kw_only=True, eq=False)
class Policy:
    """A feed-forward policy in float64; `act` takes many observations at once."""

    name: str
    environment: str  # such as "Hopper", without a version
    layers: tuple[tuple[NDArray[np.float64], NDArray[np.float64]], ...]  # (out, in) and (out,)
    activation: str
    output: str
    observation_mean: NDArray[np.float64] | None = None
    observation_std: NDArray[np.float64] | None = None
    observation_clip: float | None = None
    has_time_feature: bool = False
    log_std: NDArray[np.float64] | None = None
    log_std_layer: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    algorithm: str = ""
    source: str = ""
    sha256: str = ""  # of the file

    @property
    def is_random(self) -> bool:
        """Whether actions can be drawn, not only their mean be taken."""
        return self.log_std is not None or self.log_std_layer is not None

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return len(self.layers[-1][1])

    def act(
        self, observations: NDArray[np.float64], *, step: int, rng: np.random.Generator | None = None
    ) -> NDArray[np.float64]:
        """Choose actions in [-1, 1] for observations (n, size) at a time step; without `rng` their means."""
        hidden = self._prepare(observations, step)
        for weight, bias in self.layers[:-1]:
            hidden = hidden @ weight.T + bias
            if self.activation == "tanh":
                hidden = np.tanh(hidden)
            elif self.activation == "relu":
                hidden = np.maximum(hidden, 0.0)
        weight, bias = self.layers[-1]
        action = hidden @ weight.T + bias
        if rng is not None:
            action = action + self._std(hidden) * rng.standard_normal(action.shape)
        squashed: NDArray[np.float64] = (
            np.tanh(action) if self.output == "tanh" else np.clip(action, -1.0, 1.0)
        )
        return squashed

    def _prepare(self, observations: NDArray[np.float64], step: int) -> NDArray[np.float64]:
        wanted = self.layers[0][0].shape[1] - self.has_time_feature
        count, size = observations.shape
        if size != wanted:
            if (size, wanted) != (_ANT_OBSERVATION, _ANT_PADDED):
                raise DataError(
                    f"policy {self.name} takes {wanted} numbers; the environment gives {size}. "
                    f"It was made for {self.environment}."
                )
            observations = np.concatenate([observations, np.zeros((count, wanted - size))], axis=1)
        if self.has_time_feature:
            left = np.full((count, 1), 1.0 - step / _EPISODE_STEPS)
            observations = np.concatenate([observations, left], axis=1)
        if self.observation_mean is not None and self.observation_std is not None:
            observations = (observations - self.observation_mean) / self.observation_std
        if self.observation_clip is not None:
            observations = np.clip(observations, -self.observation_clip, self.observation_clip)
        return observations

    def _std(self, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.log_std_layer is not None:
            weight, bias = self.log_std_layer
            spread: NDArray[np.float64] = np.exp(np.clip(hidden @ weight.T + bias, -20.0, 2.0))
            return spread
        if self.log_std is None:
            raise DataError(f"policy {self.name} has mean actions only; do not ask it for random ones.")
        fixed: NDArray[np.float64] = np.exp(self.log_std)
        return fixed


def load(path: str | Path) -> Policy:
    """Load a policy, or one snapshot of a series as `file.npz@it080`."""
    text, _, snapshot = str(path).partition("@")
    file = Path(text)
    with noting_checksums() as checksums:
        arrays = npz.load(file)
    description = _describe(file)
    names = _snapshots(arrays)
    if names and not snapshot:
        raise DataError(f"{file} is a series of snapshots; choose one, such as {file.name}@{names[-1]}.")
    if snapshot:
        if snapshot not in names:
            raise unknown_name(f"snapshot of {file.name}", snapshot, names)
        prefix = f"{snapshot}/"
        arrays = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    return _build(file, snapshot, arrays, description, checksums[plain_name(file)])


def list_snapshots(path: Path) -> list[str]:
    """List the snapshots of a series in order; a single policy has none."""
    return _snapshots(npz.load(path))


def _snapshots(arrays: npz.Arrays) -> list[str]:
    return sorted({key.partition("/")[0] for key in arrays if "/" in key})


def _describe(file: Path) -> dict[str, object]:
    path = file.with_suffix(".json")
    if not path.is_file():
        raise DataError(
            f"{file}: the description {path.name} should lie beside it. See docs/data-events-rl.md."
        )
    with parsing(path, "valid JSON"):
        description = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(description, dict):
        raise DataError(f"{path}: expected a JSON object.")
    for key, allowed in (("hidden_activation", _ACTIVATIONS), ("output", _OUTPUTS)):
        if str(description.get(key)) not in allowed:
            raise DataError(
                f"{path}: {key!r} must be one of {', '.join(allowed)}; got {description.get(key)!r}."
            )
    return description


def _build(
    file: Path, snapshot: str, arrays: npz.Arrays, description: dict[str, object], sha256: str
) -> Policy:
    numbers = {key: _finite(array, name=f"{file}: {key}") for key, array in arrays.items()}
    layers: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    while f"W{len(layers)}" in numbers:
        place = len(layers)
        layers.append(_layer(numbers, f"W{place}", f"b{place}", layers[-1][1] if layers else None, file))
    if not layers:
        raise DataError(f"{file}: expected an array 'W0'; it holds {', '.join(sorted(numbers)) or 'none'}.")
    before = layers[-2][1] if len(layers) > 1 else None
    for key, size in (
        ("obs_mean", layers[0][0].shape[1]),
        ("obs_std", layers[0][0].shape[1]),
        ("log_std", len(layers[-1][1])),
    ):
        if key in numbers and numbers[key].size not in (1, size):
            raise DataError(f"{file}: {key} needs {size} numbers, or one; got {numbers[key].shape}.")
    spread = _layer(numbers, "W_logstd", "b_logstd", before, file) if "W_logstd" in numbers else None
    clip = description.get("obs_clip")
    return Policy(
        name=file.stem + (f"@{snapshot}" if snapshot else ""),
        environment=str(description.get("env", "an unnamed environment")),
        layers=tuple(layers),
        activation=str(description["hidden_activation"]),
        output=str(description["output"]),
        observation_mean=numbers.get("obs_mean"),
        observation_std=numbers.get("obs_std"),
        observation_clip=float(clip) if isinstance(clip, (int, float)) else None,
        has_time_feature=bool(description.get("time_feature", False)),
        log_std=numbers.get("log_std"),
        log_std_layer=spread,
        algorithm=str(description.get("algorithm", "")),
        source=str(description.get("source", "")),
        sha256=sha256,
    )


def _finite(array: NDArray[np.generic], *, name: str) -> NDArray[np.float64]:
    narrow(array, name=name)
    return reals(array, name=name)


def _layer(
    numbers: dict[str, NDArray[np.float64]],
    weight_name: str,
    bias_name: str,
    before: NDArray[np.float64] | None,
    file: Path,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if bias_name not in numbers:
        raise DataError(f"{file}: expected an array {bias_name!r} beside {weight_name!r}.")
    weight, bias = numbers[weight_name], numbers[bias_name]
    if (
        weight.ndim != 2
        or bias.shape != weight.shape[:1]
        or (before is not None and weight.shape[1] != len(before))
    ):
        raise DataError(
            f"{file}: {weight_name} {weight.shape} and {bias_name} {bias.shape} do not fit together or "
            "to the layer before; expected (out, in) and (out,)."
        )
    return weight, bias
