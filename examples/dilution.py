"""What an endless stream does to a sum that forgets nothing, and three cures.

A fresh Aaren layer reads a long stream. How much of its output comes from the latest 1,000 items?

python examples/dilution.py [RECORD.json]
"""

import json
import math
import sys
from pathlib import Path

import torch

from aaren.nn import AarenAttention
from aaren.nn.block import LearnedDecay
from aaren.ops import scan_attention

LATEST, HEADS = 1_000, 4
CURES = ("none", "decay, half-life 500", "learned decay, untrained", "reset")


def decay_for(cure: str, num_items: int) -> torch.Tensor:
    log_decay = torch.zeros(1, num_items, HEADS)
    if cure.startswith("decay"):
        log_decay.fill_(-math.log(2) / 500)
    elif cure.startswith("learned"):
        log_decay = LearnedDecay(HEADS)((1, num_items))  # starts with half-lives of 32 to 2,048 items
    elif cure == "reset":
        log_decay[:, -LATEST] = -torch.inf  # forget all that came before
    return log_decay


@torch.no_grad()
def measure(cure: str, num_items: int) -> dict[str, str | int | float]:
    torch.manual_seed(0)
    weight, _ = AarenAttention(width=64, num_heads=HEADS).folded_keys()
    scores = torch.randn(1, num_items, 64) @ weight.T  # what the layer's one query thinks of each item
    is_latest = torch.zeros(1, num_items, HEADS, 1)
    is_latest[:, -LATEST:] = 1.0
    outputs, _ = scan_attention(scores, is_latest, log_decay=decay_for(cure, num_items))
    return {"cure": cure, "items": num_items, "share_of_latest": float(outputs[0, -1].mean())}


if __name__ == "__main__":
    rows = [measure(cure, num_items) for cure in CURES for num_items in (2_000, 20_000, 200_000)]
    for row in rows:
        print(f"{row['cure']:26} {row['items']:7,} items: {row['share_of_latest']:.1%} from the latest")
    if len(sys.argv) > 1:
        settings = {"latest": LATEST, "width": 64, "heads": HEADS, "seed": 0}
        about = {"kind": "dilution", "command": "python examples/dilution.py", "settings": settings}
        Path(sys.argv[1]).write_text(json.dumps({**about, "measurements": rows}, indent=1) + "\n")
