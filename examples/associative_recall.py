"""Where a constant query fails: look up the value that was stored under a key, out of several pairs.

python examples/associative_recall.py [STEPS] [RECORD.json]

50 steps, the default, are a glance; the published figures are from 1,000, some five minutes on one core.
"""

import json
import sys
import time
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from aaren.nn import Encoder, EncoderConfig

KIND, WIDTH, MIXERS = "associative_recall", 64, ("aaren", "gru", "softmax")


def draw(size: int, num_pairs: int, rng: torch.Generator, batch: int = 128) -> tuple[Tensor, Tensor, Tensor]:
    keys = torch.rand(batch, size, generator=rng).argsort(1)[:, :num_pairs]  # all different
    values = torch.randint(size, (batch, num_pairs), generator=rng)
    asked = torch.randint(num_pairs, (batch, 1), generator=rng)
    blank = torch.full((batch, 1), size)  # the last item has a key and no value: the question
    items = torch.cat([keys, keys.gather(1, asked)], 1), torch.cat([values, blank], 1)
    return *items, values.gather(1, asked)[:, 0]


def measure(mixer: str, size: int, num_pairs: int, steps: int) -> dict[str, str | int | float]:
    torch.manual_seed(0)
    keys, values, head = nn.Embedding(size, WIDTH), nn.Embedding(size + 1, WIDTH), nn.Linear(WIDTH, size)
    encoder = Encoder(EncoderConfig(width=WIDTH, num_heads=4, num_layers=2, dropout=0.0, mixer=mixer))
    model = nn.ModuleList([keys, values, head, encoder])
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    rng, start = torch.Generator().manual_seed(0), time.perf_counter()
    for _ in range(steps):
        some_keys, some_values, labels = draw(size, num_pairs, rng)
        encoded, _ = encoder(keys(some_keys) + values(some_values))
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(encoded[:, -1]), labels).backward()
        optimiser.step()
    with torch.no_grad():
        some_keys, some_values, labels = draw(size, num_pairs, rng, batch=4000)
        encoded, _ = encoder(keys(some_keys) + values(some_values))
        accuracy = float((head(encoded[:, -1]).argmax(-1) == labels).float().mean())
    print(f"{size} keys, {num_pairs:2} pairs, {mixer:8} accuracy {accuracy:.3f} (chance {1 / size:.3f})")
    row = {"mixer": mixer, "keys": size, "pairs": num_pairs, "accuracy": accuracy}
    return {**row, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    rows = [measure(mixer, size, pairs, steps) for size, pairs, mixer in product((16, 64), (4, 16), MIXERS)]
    if len(sys.argv) > 2:
        about = {"steps": steps, "width": WIDTH, "layers": 2, "seed": 0}
        record = {"kind": KIND, "command": f"python examples/{KIND}.py {steps}", "settings": about}
        Path(sys.argv[2]).write_text(json.dumps({**record, "measurements": rows}, indent=1) + "\n")
