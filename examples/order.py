"""An Aaren layer is blind to order until something tells it: digits read as 64 pixels, one after the other.

python examples/order.py [EPOCHS] [SEEDS] [RECORD.json]

One epoch, the default, is a glance; the published figures are from 15 epochs and three seeds.
"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from aaren.bench.record import BenchRecord, Row
from aaren.nn import Conv, Encoder, TensorOnly

WIDTH, BATCH, RATE = 64, 64, 3e-3
ORDERS: dict[str, dict[str, object]] = {
    "aaren": {},
    "aaren, decay": {"decay": "learned"},
    "aaren, convolution": {"conv": Conv(kernel=4)},
    "aaren, positions": {"position": "learned"},
    "aaren, both": {"conv": Conv(kernel=4), "position": "learned"},
    "gru": {"mixer": "gru"},
    "transformer, positions": {"mixer": "softmax", "position": "learned"},
}


def measure(name: str, digits: list[Tensor], epochs: int, seed: int) -> Row:
    torch.manual_seed(seed)
    train_x, test_x, train_y, test_y = digits
    encoder = Encoder(width=WIDTH, num_heads=4, ff_width=128, norm="pre", dropout=0.0, **ORDERS[name])
    model = nn.Sequential(nn.Linear(1, WIDTH), TensorOnly(encoder), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, epochs * -(-len(train_x) // BATCH))
    for _ in range(epochs):
        for rows in torch.randperm(len(train_x)).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(train_x[rows])[:, -1], train_y[rows]).backward()
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        accuracy = float((model(test_x)[:, -1].argmax(-1) == test_y).float().mean())
    size = None if encoder.config.mixer == "softmax" else encoder.init_state(1).nbytes
    print(f"{name:24} seed {seed}: {accuracy:.1%} of {len(test_x)} digits", flush=True)
    return {"order": name, "seed": seed, "accuracy": accuracy, "state_bytes": size}


if __name__ == "__main__":
    epochs, seeds = (int(word) for word in [*sys.argv[1:3], "1", "1"][:2])
    images, labels = load_digits(return_X_y=True)
    pixels, labels = torch.tensor(images, dtype=torch.float32).unsqueeze(-1) / 8 - 1, torch.tensor(labels)
    digits = train_test_split(pixels, labels, test_size=0.25, random_state=0, stratify=labels)
    rows = [measure(name, digits, epochs, seed) for name in ORDERS for seed in range(seeds)]
    if len(sys.argv) > 3:
        about = {"epochs": epochs, "seeds": seeds, "width": WIDTH, "layers": 2, "batch": BATCH, "rate": RATE}
        call = f"python examples/order.py {epochs} {seeds}"
        BenchRecord(kind="order", command=call, settings=about, measurements=rows).write(Path(sys.argv[3]))
