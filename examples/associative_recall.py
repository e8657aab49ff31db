"""Where a constant query fails: look up the value that was stored under a key, out of several pairs.

python examples/associative_recall.py [STEPS] [RECORD.json]

50 steps, the default, are a glance; the published figures are from 1,000, about three minutes on one core.
"""

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from aaren.bench.record import BenchRecord, Row
from aaren.nn import Encoder, EncoderConfig

KEYS = VALUES = WIDTH = 64


def draw(num_pairs: int, rng: torch.Generator, batch: int = 128) -> tuple[Tensor, Tensor, Tensor]:
    keys = torch.rand(batch, KEYS, generator=rng).argsort(1)[:, :num_pairs]  # all different
    values = torch.randint(VALUES, (batch, num_pairs), generator=rng)
    asked = torch.randint(num_pairs, (batch, 1), generator=rng)
    blank = torch.full((batch, 1), VALUES)  # the last item has a key and no value: the question
    items = torch.cat([keys, keys.gather(1, asked)], 1), torch.cat([values, blank], 1)
    return *items, values.gather(1, asked)[:, 0]


def measure(mixer: str, num_pairs: int, steps: int) -> Row:
    torch.manual_seed(0)
    keys, values, head = nn.Embedding(KEYS, WIDTH), nn.Embedding(VALUES + 1, WIDTH), nn.Linear(WIDTH, VALUES)
    encoder = Encoder(EncoderConfig(width=WIDTH, num_heads=4, num_layers=2, dropout=0.0, mixer=mixer))
    model = nn.ModuleList([keys, values, head, encoder])
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    rng, start = torch.Generator().manual_seed(0), time.perf_counter()
    for _ in range(steps):
        some_keys, some_values, labels = draw(num_pairs, rng)
        encoded, _ = encoder(keys(some_keys) + values(some_values))
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(encoded[:, -1]), labels).backward()
        optimiser.step()
    with torch.no_grad():
        some_keys, some_values, labels = draw(num_pairs, rng, batch=4000)
        encoded, _ = encoder(keys(some_keys) + values(some_values))
        accuracy = float((head(encoded[:, -1]).argmax(-1) == labels).float().mean())
    print(f"{mixer:8} {num_pairs:2} pairs: accuracy {accuracy:.3f} (chance {1 / VALUES:.3f})")
    seconds = time.perf_counter() - start
    return {"mixer": mixer, "pairs": num_pairs, "accuracy": accuracy, "seconds": seconds}


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    rows = [measure(mixer, pairs, steps) for pairs in (4, 16) for mixer in ("aaren", "gru", "softmax")]
    if len(sys.argv) > 2:
        sizes = {"steps": steps, "width": WIDTH, "layers": 2, "keys": KEYS, "values": VALUES, "seed": 0}
        call = f"python examples/associative_recall.py {steps}"
        record = BenchRecord(kind="associative_recall", command=call, settings=sizes, measurements=rows)
        record.write(Path(sys.argv[2]))
