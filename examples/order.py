"""An Aaren layer is blind to order until something tells it: digits read as 64 pixels, one by one."""

import json
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from aaren.nn import Conv, Encoder, TensorOnly

WIDTH, BATCH, RATE = 64, 64, 3e-3
CONV, POSITION = {"conv": Conv(kernel=4)}, {"position": "learned"}
PEERS = ("gru", "mingru", "wkv", "linear", "retnet")
ORDERS: dict[str, dict[str, object]] = {
    "aaren": {},
    "aaren, decay": {"decay": "learned"},
    "aaren, convolution": CONV,
    "aaren, positions": POSITION,
    "aaren, both": CONV | POSITION,
    "gru": {"mixer": "gru"},
    "transformer, positions": {"mixer": "softmax"} | POSITION,
    "transformer, both": {"mixer": "softmax"} | CONV | POSITION,
    **{f"{peer}, both": CONV | POSITION | {"mixer": peer} for peer in PEERS},
}


def measure(name: str, digits: list[Tensor], epochs: int, seed: int) -> dict[str, str | int | float | None]:
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
    size = encoder.init_state(1).nbytes if encoder.config.mixer != "softmax" else None
    print(f"{name:24} seed {seed}: {accuracy:.1%} of {len(test_x)} digits", flush=True)
    return {"order": name, "seed": seed, "accuracy": accuracy, "state_bytes": size}


if __name__ == "__main__":  # EPOCHS SEEDS RECORD.json; published: 15 3; rows of the record are kept
    epochs, seeds = (int(word) for word in [*sys.argv[1:3], "1", "1"][:2])
    images, labels = load_digits(return_X_y=True)
    pixels, labels = torch.tensor(images, dtype=torch.float32).unsqueeze(-1) / 8 - 1, torch.tensor(labels)
    digits = train_test_split(pixels, labels, test_size=0.25, random_state=0, stratify=labels)
    files = [Path(word) for word in sys.argv[3:]]
    kept = {
        (r["order"], r["seed"]): r
        for f in files
        if f.exists()
        for r in json.loads(f.read_text())["measurements"]
    }
    rows = [kept.get((n, s)) or measure(n, digits, epochs, s) for n in ORDERS for s in range(seeds)]
    about = {"epochs": epochs, "seeds": seeds, "width": WIDTH, "layers": 2, "batch": BATCH, "rate": RATE}
    for file in files:
        record = {"kind": "order", "command": f"python examples/order.py {epochs} {seeds}", "settings": about}
        file.write_text(json.dumps({**record, "measurements": rows}, indent=1) + "\n")
