"""What the streams of this folder learn from, all drawn at random: rooms, strokes of a pen, machines."""

import math

import numpy as np
import pandas as pd

# ---- A room's temperature, every half hour ---------------------------------------------------------------

DAY = 48  # readings


class Room:
    """A room with a daily rhythm, a slow drift, noise, and a window that is opened now and then.

    `Room` in examples/browser/demo.js reads the same.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.level, self.swing = float(rng.uniform(17.0, 23.0)), float(rng.uniform(1.5, 4.0))
        self.phase = float(rng.uniform(0.0, 2.0 * math.pi))
        self.time, self.drift, self.cold = 0, 0.0, 0.0

    def read(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return the next readings, (count,), in degrees."""
        found = np.empty(count)
        for place in range(count):
            self.drift = 0.98 * self.drift + 0.12 * rng.standard_normal()
            self.cold = 0.85 * self.cold + (rng.uniform(3.0, 6.0) if rng.random() < 0.01 else 0.0)
            daily = self.swing * math.sin(2.0 * math.pi * self.time / DAY + self.phase)
            found[place] = self.level + daily + self.drift - self.cold + 0.15 * rng.standard_normal()
            self.time += 1
        return found


# ---- Strokes of a pen ------------------------------------------------------------------------------------

SPACING = 0.03  # between two points that the model sees, of the pad's width
SHAPES = ("line", "circle", "triangle", "square", "zigzag", "wave")


def draw_stroke(name: str, rng: np.random.Generator) -> np.ndarray:
    """Draw one stroke as a hand would: points (n, 2) where the pointer was seen, in widths of the pad."""
    size, turn = rng.uniform(0.13, 0.42), rng.uniform(0.0, 2.0 * math.pi)
    shake = max(0.0, rng.uniform(-0.2, 1.2))  # of the hand; one in seven draws with a ruler
    along = np.linspace(0.0, 1.0, 400)
    if name == "line":
        bow = shake * rng.normal(0.0, 0.03)
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
    wobble = shake * sum(
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
    return points + shake * rng.normal(0.0, 0.0015, points.shape)


def _walk(points: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Walk from point to point at an even pace."""
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    return np.stack([np.interp(along * length[-1], length, points[:, axis]) for axis in (0, 1)], axis=1)


def follow(points: np.ndarray) -> np.ndarray:
    """Turn a pointer's points into what the model sees, (4, steps); as `Pen` in examples/browser/demo.js.

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


# ---- Events of a machine ---------------------------------------------------------------------------------


def draw_log(machines: int, events: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw machines that start, work three times, check, and now and then stop.

    As `Machine` in examples/browser/demo.js.
    """
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
