"""Ten seconds to a first result: load the four trained streams of `examples/models`, and push a few items."""

from pathlib import Path

import numpy as np

from aaren import AarenClassifier, AarenEventForecaster, AarenForecaster, AarenPolicy

MODELS = Path(__file__).parent / "models"


def main() -> None:
    strokes = AarenClassifier.load(MODELS / "strokes").stream()
    for angle in np.linspace(0.0, 2.0 * np.pi, 40):  # a circle: direction, and how far it turned
        strokes.push([np.cos(angle), np.sin(angle), np.cos(np.pi / 20), np.sin(np.pi / 20)])
    print(f"strokes: after 40 points, {strokes.label}")

    sensor = AarenForecaster.load(MODELS / "sensor")
    sensor.push([20.0])
    coming = sensor.predict(2, levels=[80])
    print(f"sensor: the next hour of a room\n{coming.to_string(index=False, float_format='%.1f')}")

    machines = AarenEventForecaster.load(MODELS / "machines").stream()
    for time, kind in ((0.0, "start"), (0.8, "work"), (1.8, "work"), (2.8, "work")):
        coming = machines.push(time, kind)
    print(f"machines: {coming}")

    cartpole = AarenPolicy.load(MODELS / "cartpole").stream()
    print(f"cartpole: the pole leans right, push {('left', 'right')[cartpole.push([0.0, 0.0, 0.1, 0.3])]}")
    for name, session in {"strokes": strokes, "machines": machines, "cartpole": cartpole}.items():
        print(f"state of {name}: {session.state.nbytes:,} bytes, however long it runs")


if __name__ == "__main__":
    main()
