"""Roll out stand-ins for D4RL's sets, from public policies in the data folder.

    python benchmarks/rl_data hopper-medium [--transitions 200000] [--seed 0]

Twelve sets: medium, medium-replay and medium-expert of halfcheetah, hopper, walker2d and ant.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> None:
    """Make one set and compare it with the registry."""
    from aaren.datasets.catalogue import lookup
    from aaren.errors import AarenError
    from aaren.files.archive import content_sha256
    from rl_data import rollouts

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="such as hopper-medium")
    parser.add_argument("--transitions", type=int, default=200_000, help="environment steps to record")
    parser.add_argument("--seed", type=int, default=0, help="of environments and actions")
    options = parser.parse_args()
    try:
        path = rollouts.make(options.name, transitions=options.transitions, seed=options.seed)
    except AarenError as error:
        sys.exit(f"error: {error}")
    if content_sha256(path) != lookup(path.stem).sha256[path.name]:
        print(
            f"{path.name} has other bytes than the registry's: made with other options or policies, or where "
            "Gymnasium, MuJoCo or the processor round otherwise. Runs on it never share a row with those of "
            "other bytes.",
            file=sys.stderr,
        )
    print(path)


if __name__ == "__main__":
    main()
