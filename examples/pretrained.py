"""Ten seconds to a first result: load the trained streams of `examples/models`, and push a few items."""

from pathlib import Path

import numpy as np

from aaren import AarenClassifier, AarenEventForecaster, AarenForecaster

MODELS = Path(__file__).parent / "models"


def main() -> None:
    strokes = AarenClassifier.load(MODELS / "strokes").stream()
    for angle in np.linspace(0.0, 2.0 * np.pi, 40):  # a circle: direction, and how far it turned
        strokes.push([np.cos(angle), np.sin(angle), np.cos(np.pi / 20), np.sin(np.pi / 20)])
    print(f"strokes: after 40 points, {strokes.label}")

    sensor = AarenForecaster.load(MODELS / "sensor")
    sensor.push([20.0, 21.5, 19.0, 22.0])  # one reading of each room
    print(f"sensor: the next half hours\n{sensor.predict(2, levels=[80]).round(1).to_string(index=False)}")

    machines = AarenEventForecaster.load(MODELS / "machines").stream()
    for time, kind in ((0.0, "start"), (0.8, "work"), (1.8, "work"), (2.8, "work")):
        coming = machines.push(time, kind)
    print(f"machines: {coming}")

    for name, session in {"strokes": strokes, "machines": machines}.items():
        print(f"state of {name}: {session.state.nbytes:,} bytes, however long it runs")


if __name__ == "__main__":
    main()
