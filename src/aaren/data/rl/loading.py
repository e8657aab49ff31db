"""The RL sets of the registry: loaded or generated, and measured for verification.

Knows nothing of models, of batches or of a user's own files (`aaren.data.rl.files`).
"""

from aaren.data import registry
from aaren.data.dataset import Dataset, Fact
from aaren.data.files import folders
from aaren.data.rl import classic_control
from aaren.data.rl.arrays import Trajectories
from aaren.data.rl.files import read
from aaren.errors import ConfigError


def load(name: str) -> Trajectories:
    """Load a registered RL set from disk; "pendulum" and "cartpole" are generated and need no file."""
    if name in classic_control.SETS:
        return classic_control.generate(name)
    dataset = registry.lookup(name)
    if dataset.setting != "rl":
        raise ConfigError(f"{dataset.name} is a {dataset.setting} set; this reads trajectories.")
    verb = "make rl" if dataset.name.endswith("-regen") else "fetch"
    path = folders.require("rl", dataset.files[0], cure=f"Get it with: aaren data {verb} {dataset.name}")
    environment = str(dataset.options.get("environment", ""))
    return read(path, drop_short=True).named(dataset.name, environment)


def measure(dataset: Dataset) -> dict[str, Fact]:
    """Open a registered set and count what the registry states about it."""
    found = load(dataset.name)
    return {
        "state_size": found.state_size,
        "action_size": found.action_size,
        "transitions": found.num_transitions,
        "trajectories": len(found),
        "mean_return": round(float(found.returns.mean()), 1),
    }
