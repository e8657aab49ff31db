"""Train the three models of this page and write them as scripts that a browser loads, even from a file.

    python examples/browser/make_models.py [sensor] [strokes] [process]

Every model is exported to WebAssembly (`aaren.stream.export`); its module and its bytes become one plain
script in `models/`, because a browser loads neither modules nor .wasm from file://. Needs the extra `export`.
"""

import base64
import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from aaren import AarenClassifier, AarenEventForecaster
from aaren.nn import Conv, Encoder, EncoderConfig
from aaren.stream.export import export_stream

MODELS = Path(__file__).parent / "models"
WIDTH, LAYERS = 32, 2
CACHE_BYTES = 2 * LAYERS * WIDTH * 4  # keys and values of one item in a Transformer of this size, float32

# ---- A sensor: a forecast with intervals -----------------------------------------------------------------

HORIZON, PERIOD, MIDDLE, UNIT = 24, 48, 20.0, 5.0
QUANTILES = (0.1, 0.5, 0.9)


def draw_sensors(count: int, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rooms with a daily rhythm, a slow drift, noise, and a window that is opened now and then.

    Returns (count, steps), in degrees; `demo.js` draws the same.
    """
    level, swing = rng.uniform(17.0, 23.0, count), rng.uniform(1.5, 4.0, count)
    phase = rng.uniform(0.0, 2.0 * math.pi, count)
    drift, cold = np.zeros(count), np.zeros(count)
    found = np.empty((count, steps))
    for step in range(steps):
        drift = 0.98 * drift + 0.12 * rng.standard_normal(count)
        cold = 0.85 * cold + np.where(rng.random(count) < 0.01, rng.uniform(3.0, 6.0, count), 0.0)
        daily = swing * np.sin(2.0 * math.pi * step / PERIOD + phase)
        found[:, step] = level + daily + drift - cold + 0.15 * rng.standard_normal(count)
    return found


class SensorModel(nn.Module):
    """An Aaren encoder with a head of quantiles: the next readings, each with its 80 % interval."""

    def __init__(self) -> None:
        super().__init__()
        conv = Conv(kernel=4, dilations=(1, 2, 4, 8), where="stem", channels=8)
        self.encoder = Encoder(
            EncoderConfig(
                width=WIDTH, num_heads=4, num_layers=LAYERS, ff_width=64, dropout=0.0, norm="pre",
                final_norm=True, decay="learned", conv=conv,
            )
        )  # fmt: skip
        self.embed = nn.Linear(1, WIDTH)
        self.head = nn.Linear(WIDTH, 3 * HORIZON)

    def forward(self, readings: Tensor) -> Tensor:
        """Return quantiles (b, t, horizon, 3) after each of the readings (b, t)."""
        given = ((readings - MIDDLE) / UNIT).unsqueeze(-1)
        return self._read(self.encoder(self.embed(given))[0], given)

    def init_state(self, batch_size: int) -> Any:  # Any: the encoder's
        """Return the state before the first reading."""
        return self.encoder.init_state(batch_size)

    def step(self, reading: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Take in one reading, (b, 1), in degrees."""
        given = (reading - MIDDLE) / UNIT
        output, state = self.encoder.step(self.embed(given), state)
        return self._read(output, given), state

    def _read(self, output: Tensor, given: Tensor) -> Tensor:
        middle, below, above = self.head(output).chunk(3, dim=-1)
        middle = given + middle
        low, high = middle - nn.functional.softplus(below), middle + nn.functional.softplus(above)
        return torch.stack([low, middle, high], dim=-1) * UNIT + MIDDLE


def make_sensor(folder: Path) -> dict[str, Any]:
    """Train with the quantile loss and count how often the interval holds on other sensors."""
    rng, model = np.random.default_rng(0), SensorModel()
    updates = 180
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=updates)
    levels = torch.tensor(QUANTILES)
    pool = torch.from_numpy(draw_sensors(400, 600, rng)).float()
    for _ in range(updates):
        rows = torch.from_numpy(rng.integers(0, len(pool), 8))
        start = int(rng.integers(0, pool.shape[1] - 160))
        series = pool[rows, start : start + 160]
        error = series.unfold(1, HORIZON, 1)[:, 1:].unsqueeze(-1) - model(series[:, :-HORIZON])
        loss = torch.maximum(levels * error, (levels - 1.0) * error)[:, 8:].mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    other = torch.from_numpy(draw_sensors(20, 1000, rng)).float()
    with torch.no_grad():
        found = model.eval()(other[:, :-HORIZON])[:, 100:]
    truth = other.unfold(1, HORIZON, 1)[:, 101:]
    is_inside = (truth >= found[..., 0]) & (truth <= found[..., 2])
    score = {
        "coverage": float(is_inside.double().mean()),
        "error": float((truth - found[..., 1]).abs().mean()),
        "error_of_last_day": float((truth - _day_before(other)).abs().mean()),
    }
    written = export_stream(
        model, folder, to="wasm", example=torch.zeros(1, 1), check=other[0, :300, None].double().numpy()
    )
    return {**written.manifest, **score, "horizon": HORIZON, "cache_bytes_per_item": CACHE_BYTES}


def _day_before(series: Tensor) -> Tensor:
    """Return what a day ago says of each of the next readings, as `truth` is cut."""
    return series.unfold(1, HORIZON, 1)[:, 101 - PERIOD : -PERIOD]


# ---- Strokes: told apart while they are drawn ------------------------------------------------------------

UPDATES = 160
SPACING = 0.03  # between two points that the model sees, of the pad's width
SHAPES = ("line", "circle", "triangle", "square", "zigzag", "wave")


def draw_stroke(name: str, rng: np.random.Generator) -> np.ndarray:
    """Draw one stroke as a hand would: points (n, 2) where the pointer was seen, in widths of the pad."""
    size, turn = rng.uniform(0.13, 0.42), rng.uniform(0.0, 2.0 * math.pi)
    along = np.linspace(0.0, 1.0, 400)
    if name == "line":
        bow = rng.normal(0.0, 0.03)
        path = np.stack([2.0 * along, bow * np.sin(math.pi * along)], axis=1)
    elif name == "circle":
        angle = 2.0 * math.pi * rng.uniform(0.9, 1.12) * along
        path = np.stack([np.cos(angle), rng.uniform(0.75, 1.3) * np.sin(angle)], axis=1)
    elif name in ("triangle", "square"):
        corners = 3 if name == "triangle" else 4
        angle = 2.0 * math.pi * np.arange(corners) / corners + rng.normal(0.0, 0.12, corners)
        points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.uniform([1.0, 0.75], [1.0, 1.3])
        start = rng.choice([0.0, rng.uniform(0.0, 1.0)])  # at a corner, or on the way to the next
        first = points[0] + start * (points[1] - points[0])
        path = _walk(np.array([first, *points[1:], points[0], first][: corners + 1 + (start > 0.0)]), along)
    elif name == "zigzag":
        count = int(rng.integers(4, 9))
        points = np.stack([np.arange(count), np.tile([-1.0, 1.0], count)[:count]], axis=1)
        path = _walk(points * [rng.uniform(0.35, 0.8), rng.uniform(0.5, 1.0)], along)
        path *= 2.0 / max(1.0, np.ptp(path[:, 0]))
    else:
        turns = rng.uniform(1.3, 3.5)
        path = np.stack([2.2 * along, rng.uniform(0.25, 0.6) * np.sin(2.0 * math.pi * turns * along)], axis=1)
    if rng.random() < 0.5:
        path = path * [1.0, -1.0]
    path = path[::-1] if rng.random() < 0.3 else path
    wobble = sum(
        rng.normal(0.0, 0.02, 2) * np.sin(2.0 * math.pi * rate * along[:, None] + rng.uniform(0.0, 6.3, 2))
        for rate in (0.5, 1.0, 2.0)
    )
    path = (
        size
        * (path + wobble)
        @ np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    )
    seen = int(rng.integers(14, 160))  # how often a pointer is seen on its way: quick and slow hands
    hurry = rng.uniform(0.7, 1.4)
    points = np.stack(
        [np.interp(np.linspace(0, 1, seen) ** hurry, along, path[:, axis]) for axis in (0, 1)], 1
    )
    return points + rng.normal(0.0, 0.0015, points.shape)


def _walk(points: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Walk from point to point at an even pace."""
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    return np.stack([np.interp(along * length[-1], length, points[:, axis]) for axis in (0, 1)], axis=1)


def follow(points: np.ndarray) -> np.ndarray:
    """Turn a pointer's points into what the model sees, (4, steps): `Pen` in demo.js does the same.

    Whenever the pen is SPACING from where it was last, a step: its direction, and how far it turned, both as
    cosine and sine.
    """
    last, before, found = points[0], None, []
    for point in points[1:]:
        while (distance := float(np.linalg.norm(point - last))) >= SPACING:
            heading = (point - last) / distance
            last = last + SPACING * heading
            x, y = heading if before is None else before
            turned = (x * heading[0] + y * heading[1], x * heading[1] - y * heading[0])
            before = heading
            found.append((*heading, *turned))
    return np.array(found).T.reshape(4, -1)


def draw_strokes(count: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[str]]:
    """Draw strokes as the model sees them, with their names."""
    names = [SHAPES[place % len(SHAPES)] for place in range(count)]
    return [follow(draw_stroke(name, rng)) for name in names], names


def make_strokes(folder: Path) -> dict[str, Any]:
    """Train an `AarenClassifier`, and count how often it is right on strokes of another seed."""
    series, names = draw_strokes(900, np.random.default_rng(0))
    classifier = AarenClassifier(
        model="network",
        width=WIDTH,
        num_layers=LAYERS,
        updates=UPDATES,
        dropout=0.05,
        random_state=0,
        threads=1,
    )
    classifier.fit(series, names)
    other, wanted = draw_strokes(300, np.random.default_rng(1))
    score = {
        "accuracy": classifier.score(other, wanted),
        "accuracy_at_half": float(
            np.mean(classifier.classes_[classifier.predict_proba_at(other, 0.5).argmax(1)] == wanted)
        ),
    }
    classifier.model_.preprocessing = {
        "classes": [str(name) for name in classifier.classes_],
        "mean": classifier.mean_.tolist(),
        "deviation": classifier.deviation_.tolist(),
    }
    check = np.concatenate([one.T for one in other[:4]])
    written = export_stream(classifier.model_, folder, to="wasm", check=check)
    return {**written.manifest, **score, "spacing": SPACING, "cache_bytes_per_item": CACHE_BYTES}


# ---- A process: when the next event comes, and what it is -------------------------------------------------

KINDS = ("start", "work", "check", "stop")


def draw_log(machines: int, events: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw machines that start, work three times, check, and now and then stop; as `demo.js` does."""
    rows = []
    for machine in range(machines):
        now, kind, done = 0.0, "start", 0
        for _ in range(events):
            rows.append((machine, now, kind))
            usual = {"start": 0.8, "work": 1.0, "check": 2.0, "stop": 6.0}[kind]
            now += usual * math.exp(0.2 * rng.standard_normal())
            if kind == "stop":
                kind, done = "start", 0
            elif kind == "check":
                kind, done = ("stop", 0) if rng.random() < 0.3 else ("work", 1)
            else:
                kind, done = ("work", done + 1) if done < 3 else ("check", 0)
    return pd.DataFrame(rows, columns=["machine", "time", "kind"])


def make_process(folder: Path) -> dict[str, Any]:
    """Train an `AarenEventForecaster` on logs of machines."""
    forecaster = AarenEventForecaster(
        sequence="machine",
        width=WIDTH,
        num_layers=LAYERS,
        updates=100,
        patience=4,
        learning_rate=3e-3,
        seed=0,
    )
    forecaster.fit(draw_log(60, 80, np.random.default_rng(0)))
    print(forecaster.table())
    kinds = [str(kind) for kind in forecaster.kinds_]
    other = draw_log(1, 200, np.random.default_rng(1))
    check = np.column_stack([other["time"], [kinds.index(kind) for kind in other["kind"]]])
    forecaster.model_.preprocessing = {"mark_names": kinds}
    written = export_stream(forecaster.model_, folder, to="wasm", check=check)
    return {**written.manifest, "kinds": kinds, "cache_bytes_per_item": CACHE_BYTES}


# ---- Scripts ---------------------------------------------------------------------------------------------


def write_script(name: str, folder: Path, manifest: dict[str, Any]) -> Path:
    """Write an exported module and its bytes as one plain script, which adds itself to `aarenModels`."""
    module = (folder / "aaren_model.js").read_text(encoding="utf-8")
    plain = module.replace("export ", "").replace("import.meta.url", "document.baseURI")
    content = base64.b64encode((folder / "aaren_model.wasm").read_bytes()).decode()
    script = f"""(function () {{
{plain}
const bytes = Uint8Array.from(atob("{content}"), (letter) => letter.charCodeAt(0));
(globalThis.aarenModels ??= {{}})[{json.dumps(name)}] = {{
  manifest: {json.dumps(manifest)},
  load: () => load(bytes),
}};
}})();
"""
    MODELS.mkdir(exist_ok=True)
    target = MODELS / f"{name}.js"
    target.write_text(script, encoding="utf-8")
    return target


MAKERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "sensor": make_sensor,
    "strokes": make_strokes,
    "process": make_process,
}


def main() -> None:
    for name in sys.argv[1:] or MAKERS:
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            manifest = MAKERS[name](Path(folder))
            written = write_script(name, Path(folder), manifest)
        scores = {
            key: round(value, 3)
            for key, value in manifest.items()
            if isinstance(value, float) and value < 100
        }
        size = written.stat().st_size
        print(f"{written.name}: {size:,} bytes, state {manifest['state_bytes']:,} bytes, {scores}")


if __name__ == "__main__":
    main()
