"""The trained streams of `examples/models` load, are small, and answer as on the day they were written."""

import json
from typing import Any

import numpy as np
import pytest

from support.examples import MODELS, generators, load_stream

NAMES = sorted(folder.name for folder in MODELS.iterdir() if (folder / "README.md").exists())


def known(name: str) -> dict[str, Any]:
    return json.loads((MODELS / name / "known.json").read_text(encoding="utf-8"))


def test_all_are_there() -> None:
    assert NAMES == ["cartpole", "machines", "sensor", "strokes"]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_below_a_megabyte_and_its_card_says_what_it_is(name: str) -> None:
    files = [path for path in (MODELS / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert not [path for path in files if path.suffix in (".pt", ".pkl")]
    card = (MODELS / name / "README.md").read_text(encoding="utf-8")
    for part in ("Learned from", "Judged on", "Meant for", "Licence", f"make.py {name}"):
        assert part in card


def test_strokes() -> None:
    want = known("strokes")
    session = load_stream("strokes").stream()
    for point in want["points"]:
        found = session.push(point)
    np.testing.assert_allclose(np.ravel(found), want["probabilities"], atol=1e-4)
    assert session.label == "circle"


def test_strokes_are_told_at_their_end_and_mostly_at_half() -> None:
    model = load_stream("strokes")
    strokes, names = generators().draw_strokes(300, np.random.default_rng(3))
    right = {
        share: np.mean(model.classes_[model.predict_proba_at(strokes, share).argmax(1)] == names)
        for share in (0.5, 1.0)
    }
    assert right[1.0] >= 0.9
    assert right[0.5] >= 0.65  # half a square is half a triangle's path too; by chance 0.17


def test_sensor() -> None:
    found = load_stream("sensor").predict(3)
    np.testing.assert_allclose(found["room"].to_numpy(), known("sensor")["forecast"], atol=1e-3)


def test_the_band_of_the_sensor_holds_what_it_says() -> None:
    model, drawn = load_stream("sensor"), generators()
    room, rng = drawn.Room(np.random.default_rng(0)), np.random.default_rng(3)
    vars(room).update(known("sensor")["room"])  # where the training rows ended
    readings = room.read(41 * drawn.DAY, rng)
    session, inside, errors = model.stream(), [], []
    for place, reading in enumerate(readings[: -drawn.DAY]):
        forecast = np.ravel(session.push([reading]))
        low, high = session.quantiles([80]).numpy()[:, 0].T
        truth = readings[place + 1 : place + 1 + drawn.DAY]
        inside.append((low <= truth) & (truth <= high))
        errors.append(np.abs(truth - forecast))
    assert abs(np.mean(inside) - 0.8) <= 0.05  # over 40 days and all 48 steps of the forecast
    assert (
        np.mean(errors) < 0.95 * np.abs(readings[drawn.DAY :] - readings[: -drawn.DAY]).mean()
    )  # day before


def test_machines() -> None:
    want = known("machines")
    session = load_stream("machines").stream()
    for time, kind in zip(want["times"], want["kinds"], strict=True):
        coming = session.push(time, kind)
    assert float(coming.time) == pytest.approx(want["next_time"], abs=1e-3)
    assert {str(kind): float(p) for kind, p in coming.probabilities.items()} == pytest.approx(
        want["probabilities"], abs=1e-4
    )


def test_machines_are_foretold_better_than_by_a_markov_chain() -> None:
    from aaren.events.fitting import compare, fit_markov
    from aaren.events.frames import read_events
    from aaren.events.likelihood import explain

    model, draw_log = load_stream("machines"), generators().draw_log
    known_events, other = (
        read_events(draw_log(count, 80, np.random.default_rng(seed)), model.columns_).events
        for count, seed in ((120, 0), (40, 3))
    )
    found = [explain(some, other) for some in (model.model_, fit_markov(known_events))]
    ours, theirs = (np.stack([one.time, one.mark, one.is_right])[:, ~other.is_first] for one in found)
    gain, error = compare(ours, theirs)
    assert gain > 0.3  # nats per event; counting work to three is worth about 0.4
    assert gain > 10 * error
    assert ours[2].mean() > theirs[2].mean() + 0.15


def test_cartpole() -> None:
    want = known("cartpole")
    session, actions = load_stream("cartpole").stream(), []
    for place, observation in enumerate(want["observations"]):
        actions.append(int(session.push(observation, 1.0 if place else None)))
    assert actions == want["actions"]
