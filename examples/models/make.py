"""Train the four streams of this folder on data that is generated, write their cards, and export three.

    python examples/models/make.py [strokes] [sensor] [machines] [cartpole] [page]

Each becomes a folder that its estimator's `load` reads: weights without pickle, settings as JSON, `README.md`
(the card) and `known.json`, a short input with the answers that it got here. `page` trains nothing: it
exports strokes, sensor and machines to WebAssembly for `examples/browser`, each as one plain script, because
a browser loads neither modules nor .wasm from file://. It needs the extra `export`, and Node for a check.
"""

import base64
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from generators import DAY, SPACING, Room, draw_log, draw_strokes

from aaren import AarenClassifier, AarenEventForecaster, AarenForecaster, AarenPolicy
from aaren.export import export_stream
from aaren.version import __version__

HERE = Path(__file__).parent
PAGE = HERE.parent / "browser" / "models"
FIRST, HALF_HOUR = pd.Timestamp("2026-01-01"), pd.Timedelta(minutes=30)
CARD = """# {name}: {title}

{about}

```python
{code}
```

- **Learned from** {data}: generated, seed 0; no recorded person, place or device is in it.
  `python examples/models/make.py {name}` trains it again.
- **Judged on** data that it did not see: {scores}.
- **Meant for** trying the library and its tools. The generated world is simpler than yours: fit your own.
- **Licence** Apache-2.0, as the library. Written by aaren {version}.
"""


def make_strokes() -> tuple[Any, dict[str, str], dict[str, Any]]:
    """Name a stroke while it is drawn: line, circle, triangle, square, zigzag, wave."""
    model = AarenClassifier(size="small", random_state=0, threads=1)
    model.fit(*draw_strokes(6_000, np.random.default_rng(0)))
    strokes, names = draw_strokes(300, np.random.default_rng(1))
    half = model.classes_[model.predict_proba_at(strokes, 0.5).argmax(1)]
    circle = next(stroke for stroke, name in zip(strokes, names, strict=True) if name == "circle")
    session = model.stream()
    for point in circle.T:
        answer = session.push(point)
    scores = (
        f"{100 * model.score(strokes, names):.1f} % of 300 strokes right, "
        f"{100 * np.mean(half == names):.1f} % when half is drawn"
    )
    card = {
        "title": "which shape is being drawn?",
        "about": "Direction and turn of a pen in, a point at a time; probabilities of six shapes out.",
        "code": 'classifier = AarenClassifier.load("examples/models/strokes")\n'
        "session = classifier.stream()\nprobabilities = session.push([1.0, 0.0, 1.0, 0.0])",
        "data": "6,000 drawn strokes",
        "scores": scores,
    }
    return model, card, {"points": circle.T.tolist(), "probabilities": np.ravel(answer).tolist()}


def make_sensor() -> tuple[Any, dict[str, str], dict[str, Any]]:
    """Forecast a room's temperature a day ahead, with intervals."""
    rng = np.random.default_rng(0)
    room = Room(rng)
    readings = room.read(4_000, rng)
    dates = pd.date_range(FIRST, periods=len(readings), freq=HALF_HOUR)
    model = AarenForecaster(horizon=DAY)
    model.fit(pd.DataFrame({"ds": dates, "room": readings}))
    answer, now = model.predict(3), vars(room).copy()
    later = room.read(61 * DAY, np.random.default_rng(1))
    truth, low, middle, high = judge_sensor(model, later)
    naive = np.abs(truth[DAY:] - truth[:-DAY]).mean()
    inside = np.mean((low <= truth) & (truth <= high))
    card = {
        "title": "a room's temperature, a day ahead",
        "about": "A reading every half hour in; the next 48, with intervals, out.",
        "code": 'forecaster = AarenForecaster.load("examples/models/sensor")\n'
        "print(forecaster.predict(levels=[80, 95]))\nforecaster.push([20.0])",
        "data": "a simulated room, 4,000 half hours",
        "scores": f"mean error {np.abs(middle - truth).mean():.2f} degrees over the 60 days that followed "
        f"(day before: {naive:.2f}); {100 * inside:.0f} % inside the 80 % interval",
    }
    return model, card, {"forecast": answer["room"].tolist(), "room": now}


def judge_sensor(model: AarenForecaster, readings: np.ndarray) -> tuple[np.ndarray, ...]:
    """Push readings; return truth, lower bound, forecast and upper bound of 80 %, each (n, DAY)."""
    session, found = model.stream(), []
    for reading in readings[:-DAY]:
        middle = session.push([reading])
        low, high = session.quantiles([80]).unbind(-1)
        found.append([part[:, 0].numpy() for part in (low, middle, high)])
    truth = np.lib.stride_tricks.sliding_window_view(readings, DAY)[1:]
    return truth, *np.moveaxis(np.array(found), 1, 0)


def make_machines() -> tuple[Any, dict[str, str], dict[str, Any]]:
    """Say when a machine's next event comes, and what it is."""
    model = AarenEventForecaster(
        sequence="machine", width=32, updates=400, patience=4, learning_rate=3e-3, random_state=0
    )
    model.fit(draw_log(120, 80, np.random.default_rng(0)))
    other = draw_log(40, 80, np.random.default_rng(1))
    scored = model.score_events(other)
    session = model.stream()
    first = other[other["machine"] == 0].head(12)
    for when, kind in zip(first["time"], first["kind"], strict=True):
        coming = session.push(when, kind)
    card = {
        "title": "when does the next event come, and what is it?",
        "about": "Machines that start, work three times, check, and now and then stop.",
        "code": 'model = AarenEventForecaster.load("examples/models/machines")\nsession = model.stream()\n'
        'coming = session.push(0.0, "start")\nprint(coming.time, coming.interval(80), coming.probabilities)',
        "data": "120 simulated machines, 80 events each",
        "scores": f"{scored['surprise'].mean():.3f} nats per event over 40 other machines",
    }
    known = {
        "times": first["time"].tolist(),
        "kinds": first["kind"].tolist(),
        "next_time": float(coming.time),
        "probabilities": {str(kind): float(p) for kind, p in coming.probabilities.items()},
    }
    return model, card, known


def make_cartpole() -> tuple[Any, dict[str, str], dict[str, Any]]:
    """Balance a pole, learned from recorded episodes alone."""
    model = AarenPolicy(updates=300, random_state=0, threads=1, comparison_episodes=0).fit("cartpole")
    played = model.evaluate("CartPole-v1", episodes=10, seed=1)
    session, actions = model.stream(), []
    observations = np.random.default_rng(1).normal(0.0, 0.05, (12, 4)).tolist()
    for place, observation in enumerate(observations):
        actions.append(int(session.push(observation, 1.0 if place else None)))
    card = {
        "title": "balance a pole",
        "about": "CartPole-v1: position, speed, angle and turning speed in, left or right out.",
        "code": 'policy = AarenPolicy.load("examples/models/cartpole")\nsession = policy.stream()\n'
        "action = session.push([0.0, 0.1, 0.02, 0.0])",
        "data": "episodes that good, clumsy and random scripted players rolled out",
        "scores": f"{played.mean:.0f} ± {played.standard_error:.0f} of 500 steps in 10 fresh episodes",
    }
    return model, card, {"observations": observations, "actions": actions}


MAKERS: dict[str, Callable[[], tuple[Any, dict[str, str], dict[str, Any]]]] = {
    "strokes": make_strokes,
    "sensor": make_sensor,
    "machines": make_machines,
    "cartpole": make_cartpole,
}


def write_page() -> None:
    """Export the three saved models that the page streams, each checked on rows of another seed."""
    rng = np.random.default_rng(2)
    strokes = AarenClassifier.load(HERE / "strokes")
    points = np.concatenate([stroke.T for stroke in draw_strokes(6, rng)[0]])
    write_script("strokes", strokes, check=points, spacing=SPACING)

    sensor = AarenForecaster.load(HERE / "sensor")
    room = json.loads((HERE / "sensor" / "known.json").read_text(encoding="utf-8"))["room"]
    seconds = FIRST.timestamp() + HALF_HOUR.total_seconds() * (room["time"] + np.arange(300))
    readings = Room(rng).read(300, rng)
    names = list(sensor.whole_step().inputs)
    given = {"row": readings, "time": seconds}
    write_script(
        "sensor",
        sensor,
        check=np.column_stack([given[name] for name in names]),
        room=room,
        first_seconds=FIRST.timestamp(),
        seconds_per_reading=HALF_HOUR.total_seconds(),
    )

    machines = AarenEventForecaster.load(HERE / "machines")
    log = draw_log(1, 200, rng)
    kinds = [list(machines.kinds_).index(kind) for kind in log["kind"]]
    write_script("machines", machines, check=np.column_stack([log["time"], kinds]))


def write_script(name: str, model: Any, *, check: np.ndarray, **more: object) -> None:
    """Export a model, and write module and bytes as one plain script, which adds itself to `aarenModels`."""
    with tempfile.TemporaryDirectory() as place:
        written = export_stream(model, place, to="wasm", check=check)
        module = (Path(place) / "aaren_model.js").read_text(encoding="utf-8")
        binary = (Path(place) / "aaren_model.wasm").read_bytes()
    plain = module.replace("export ", "").replace("import.meta.url", "document.baseURI")
    PAGE.mkdir(exist_ok=True)
    (PAGE / f"{name}.js").write_text(
        f"""(function () {{
{plain}
const bytes = Uint8Array.from(atob("{base64.b64encode(binary).decode()}"), (letter) => letter.charCodeAt(0));
(globalThis.aarenModels ??= {{}})[{json.dumps(name)}] = {{
  manifest: {json.dumps({**written.manifest, **more})},
  load: () => load(bytes),
}};
}})();
""",
        encoding="utf-8",
    )
    code = len(binary) - written.manifest["weight_bytes"]
    print(
        f"page, {name}: weights {written.manifest['weight_bytes']:,} bytes, code {code:,}, state "
        f"{written.manifest['state_bytes']:,}; differs from torch by {written.largest_difference:.1g}",
        flush=True,
    )


def main() -> None:
    wanted = sys.argv[1:] or [*MAKERS, "page"]
    for name in (name for name in wanted if name != "page"):
        model, card, known = MAKERS[name]()
        folder = Path(model.save(HERE / name))
        (folder / "README.md").write_text(
            CARD.format(name=name, version=__version__, **card), encoding="utf-8"
        )
        (folder / "known.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{name}: {size:,} bytes; {card['scores']}", flush=True)
    if "page" in wanted:
        write_page()


if __name__ == "__main__":
    main()
