"""Which order does the event estimator need: its convolution, counted positions, or a decay per event?

    python benchmarks/event_order.py [--record FILE]     # a few CPU minutes

Small generated processes; nats per event of the part that `fit` holds out to compare by, so that the choice
looks at no test set. Rows that the record holds are not run again.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from aaren.bench.record import machine
from aaren.events import AarenEventForecaster, EventModelConfig
from aaren.events.estimator import OURS
from aaren.files.atomic import write_text
from event_forecaster import Drawn, marked_hawkes, second_order, semi_markov

RECORD = Path(__file__).parents[1] / "results" / "bench" / "event-order.json"
PROCESSES: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "second-order": second_order,
    "marked-hawkes": marked_hawkes,
    "semi-markov": semi_markov,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "decay per event": {"decay": "learned"},
    "positions": {"position": "sinusoid"},
    "both": {"decay": "learned", "position": "sinusoid"},
    "no convolution": {"conv": None},
}
SEQUENCES, SEEDS, UPDATES = 100, (0, 1), 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderedConfig(EventModelConfig):
    """An event model whose encoder may count events, or forget by them."""

    position: str = "none"
    decay: str | None = None


class Ordered(AarenEventForecaster):
    """The estimator with another encoder."""

    options: dict[str, Any]

    def _config(self, *sizes: Any) -> OrderedConfig:
        plain = super()._config(*sizes)
        given = {field.name: getattr(plain, field.name) for field in fields(plain)}
        return OrderedConfig(**given | self.options)


def measure(process: str, variant: str, seed: int) -> dict[str, Any]:
    """Fit one variant and return how it explains the events held out."""
    rng = np.random.default_rng(seed)
    drawn = [PROCESSES[process](rng) for _ in range(SEQUENCES)]
    model = Ordered(updates=UPDATES, random_state=seed)
    model.options = VARIANTS[variant]
    model.fit([(times, kinds) for times, kinds, _ in drawn])
    return {
        "process": process,
        "variant": variant,
        "seed": seed,
        "nll": model.held_out_[OURS].total,
        "updates": model.num_updates_,
    }


def main() -> None:
    """Measure what the record lacks, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--record", type=Path, default=RECORD)
    path = parser.parse_args().record
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    for seed in SEEDS:
        for process in PROCESSES:
            for variant in VARIANTS:
                if not any(
                    (row["process"], row["variant"], row["seed"]) == (process, variant, seed) for row in rows
                ):
                    rows.append(measure(process, variant, seed))
                    write_text(path, json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    for process in PROCESSES:
        for variant in VARIANTS:
            found = [row["nll"] for row in rows if (row["process"], row["variant"]) == (process, variant)]
            print(f"{process:15} {variant:16} {mean(found):.3f} nats per event, {len(found)} seeds")


if __name__ == "__main__":
    main()
