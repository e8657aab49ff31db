"""Does HalfCheetah Medium-Expert favour the model that its settings were chosen with?

    python benchmarks/rl_settings.py [--record FILE]     # about four CPU minutes a row

The `cpu` profile of RL was chosen with Aaren, on this set. So both models are trained with it and with
settings beside it, by a seed that the grid does not use, and play after the last update, asked for two
returns. Rows that the record holds are not run again.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aaren.bench.record import machine
from aaren.engine.presets import make_run
from aaren.engine.run import train
from aaren.engine.use import Sweep, SweepRow, sweep_run
from aaren.files.atomic import write_text

RECORD = Path(__file__).parents[1] / "results" / "rl" / "medium_expert.json"
DATASET, MODELS = "halfcheetah-medium-expert-regen", ("aaren", "transformer")
SETTINGS = (
    "",  # the profile as it is
    "batch_size=64 updates=2400",
    "batch_size=64 updates=2400 rate_falls=false network.dropout=0.1",
    "network.dropout=0.1",
    "optimiser.learning_rate=3e-4",
    "optimiser.learning_rate=3e-3",
)
ASKED = ("6000", "11000")  # as published, just above the medium policy's; near the expert's
SEED, EPISODES = 100, 12


def measure(model: str, settings: str, *, dataset: str = DATASET) -> dict[str, Any]:
    """Train one model with some settings and let it play."""
    chosen = ["evaluations=1", f"episodes={EPISODES}", "engine.threads=1", *settings.split()]
    run = make_run("rl", dataset, model=model, profile="cpu", seed=SEED, assignments=chosen)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        record = train(run, folder)
        rows: list[SweepRow] = []
        sweep_run(folder, Sweep("target_return", ASKED), on_row=rows.append)
    return {
        "model": model,
        "set": settings,
        "seed": SEED,
        "cpu_seconds": round(record.seconds["cpu"]),
        "data": dict(record.data),
        "asked": {
            row.value: {
                "score": row.metrics["score"],
                "returns": sorted(round(row.metrics[f"return_{episode}"]) for episode in range(EPISODES)),
            }
            for row in rows
        },
    }


def main() -> None:
    """Measure what the record lacks, and print all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--record", type=Path, default=RECORD)
    path = parser.parse_args().record
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    for settings, model in product(SETTINGS, MODELS):
        if not any((row["model"], row["set"], row["seed"]) == (model, settings, SEED) for row in rows):
            rows.append(measure(model, settings))
            content = {"machine": machine(), "rows": rows}
            write_text(path, json.dumps(content, indent=1) + "\n")
    for row in rows:
        scores = ", ".join(f"{asked}: {found['score']:.1f}" for asked, found in row["asked"].items())
        print(f"{row['model']:12} seed {row['seed']:<4} {row['set'] or 'as it is':64} asked for {scores}")


if __name__ == "__main__":
    main()
