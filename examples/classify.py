"""Tell waves apart while they come in: train on whole series, answer after every sample."""

import numpy as np

from aaren import AarenClassifier

STEPS, SPEEDS = 40, {"calm": 0.25, "choppy": 0.45, "storm": 0.8}


def waves(cases: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy waves of three speeds, two channels: (cases, channels, steps) and their names."""
    random = np.random.default_rng(seed)
    names = np.array(list(SPEEDS))[np.arange(cases) % 3]
    speed = np.array([SPEEDS[name] for name in names])[:, None, None]
    start = random.uniform(0.0, 2.0 * np.pi, (cases, 2, 1))
    series = np.sin(speed * np.arange(STEPS) + start) + 0.3 * random.standard_normal((cases, 2, STEPS))
    return series, names


def main() -> None:
    classifier = AarenClassifier(threads=1)
    classifier.fit(*waves(120, seed=0))
    series, names = waves(90, seed=1)
    print(f"accuracy on whole series: {classifier.score(series, names):.2f}")

    session = classifier.stream()  # one series, sample by sample
    print(f"\na {names[1]} wave as it comes in:")
    for step, sample in enumerate(series[1].T, start=1):
        probabilities = session.push(sample)
        if step % 8 == 0:
            shown = "  ".join(f"{n} {p:.2f}" for n, p in zip(session.classes, probabilities, strict=True))
            print(f"  after {step:2} samples: {shown}")
    batch = classifier.predict_proba(series[1:2])[0]
    print(f"the batch answer is the same: {np.allclose(probabilities, batch, atol=1e-4)}")

    streams = classifier.stream(batch_size=len(series), stop_at="auto")  # all of them side by side
    print("\nhow early one can tell:")
    for step, samples in enumerate(np.moveaxis(series, 2, 0), start=1):
        streams.push(samples)
        if step in (1, 5, 10, 20, 40):
            accuracy = np.mean(streams.label == names)
            print(f"  {step:2} of {STEPS} samples: accuracy {accuracy:.2f}")
    stop = classifier.early_stop()
    right = np.mean(np.where(streams.is_decided, streams.decision, streams.label) == names)
    seen = np.mean(np.where(streams.is_decided, streams.decided_at, STEPS)) / STEPS
    print(f"stopping at p > {stop.threshold:.2f}: accuracy {right:.2f} after {seen:.0%} of a series")
    print(f"memory: {streams.state.nbytes / len(series):,.0f} bytes per stream, at every step")


if __name__ == "__main__":
    main()
