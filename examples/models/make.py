"""Train the four streams of this folder on data that is generated here, and write their model cards.

    python examples/models/make.py [strokes] [sensor] [machines] [cartpole]

Each becomes a folder that its estimator's `load` reads: weights without pickle, settings as JSON, `README.md`
(the card) and `known.json`, a short input with the answers that it got here.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aaren import AarenClassifier, AarenEventForecaster, AarenForecaster, AarenPolicy
from aaren.version import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "browser"))
from make_models import draw_log, draw_sensors, draw_strokes  # noqa: E402  the page draws the same

HALF_HOURS = pd.date_range("2026-01-01", periods=2_000, freq="30min")
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
    model.fit(*draw_strokes(900, np.random.default_rng(0)))
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
        "data": "900 drawn strokes",
        "scores": scores,
    }
    return model, card, {"points": circle.T.tolist(), "probabilities": np.ravel(answer).tolist()}


def make_sensor() -> tuple[Any, dict[str, str], dict[str, Any]]:
    """Forecast a room's temperature a day ahead, with intervals."""
    rooms = draw_sensors(4, len(HALF_HOURS), np.random.default_rng(0))
    names = [f"room{number}" for number in range(len(rooms))]
    table = pd.DataFrame({"ds": HALF_HOURS, **dict(zip(names, rooms, strict=True))})
    known, later = table[:-480], table[-480:]
    model = AarenForecaster(horizon=48, lag_steps=96, correction=False, seed=0).fit(known)
    errors, inside = [], []
    for start in range(0, 480, 48):
        found, day = model.predict(levels=[80]), later[start : start + 48]
        truth = day[names].to_numpy()
        low, high = (found[[f"{name}-{side}-80" for name in names]].to_numpy() for side in ("lo", "hi"))
        errors.append(np.abs(found[names].to_numpy() - truth).mean())
        inside.append(np.mean((truth >= low) & (truth <= high)))
        model.update(day)
    naive = np.abs(later[names].to_numpy() - table[names].to_numpy()[-528:-48]).mean()
    answer = model.predict(3)
    card = {
        "title": "a room's temperature, a day ahead",
        "about": "Readings of four rooms every half hour in; the next 48, with intervals, out.",
        "code": 'forecaster = AarenForecaster.load("examples/models/sensor")\n'
        "print(forecaster.predict(levels=[80, 95]))\nforecaster.push([20.0, 21.5, 19.0, 22.0])",
        "data": "4 simulated rooms, 1,520 half hours each",
        "scores": f"mean error {np.mean(errors):.2f} degrees on ten later days (day before: {naive:.2f}); "
        f"{100 * np.mean(inside):.0f} % inside the 80 % interval",
    }
    return model, card, {"forecast": answer[names].to_numpy().tolist()}


def make_machines() -> tuple[Any, dict[str, str], dict[str, Any]]:
    """Say when a machine's next event comes, and what it is."""
    model = AarenEventForecaster(
        sequence="machine", width=32, updates=400, patience=4, learning_rate=3e-3, seed=0
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


def main() -> None:
    for name in sys.argv[1:] or MAKERS:
        model, card, known = MAKERS[name]()
        folder = Path(model.save(HERE / name))
        (folder / "README.md").write_text(
            CARD.format(name=name, version=__version__, **card), encoding="utf-8"
        )
        (folder / "known.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{name}: {size:,} bytes; {card['scores']}", flush=True)


if __name__ == "__main__":
    main()
