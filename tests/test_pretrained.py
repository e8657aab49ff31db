"""The trained streams of `examples/models` load, are small, and answer as on the day they were written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODELS = Path(__file__).parents[1] / "examples" / "models"
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
    pytest.importorskip("sklearn")
    from aaren import AarenClassifier

    want = known("strokes")
    session = AarenClassifier.load(MODELS / "strokes").stream()
    for point in want["points"]:
        found = session.push(point)
    np.testing.assert_allclose(np.ravel(found), want["probabilities"], atol=1e-4)
    assert session.label == "circle"


def test_sensor() -> None:
    pytest.importorskip("pandas")
    from aaren import AarenForecaster

    found = AarenForecaster.load(MODELS / "sensor").predict(3).drop(columns="ds")
    np.testing.assert_allclose(found.to_numpy(), known("sensor")["forecast"], atol=1e-3)


def test_machines() -> None:
    pytest.importorskip("pandas")
    from aaren import AarenEventForecaster

    want = known("machines")
    session = AarenEventForecaster.load(MODELS / "machines").stream()
    for time, kind in zip(want["times"], want["kinds"], strict=True):
        coming = session.push(time, kind)
    assert float(coming.time) == pytest.approx(want["next_time"], abs=1e-3)
    assert {str(kind): float(p) for kind, p in coming.probabilities.items()} == pytest.approx(
        want["probabilities"], abs=1e-4
    )


def test_cartpole() -> None:
    pytest.importorskip("sklearn")
    from aaren import AarenPolicy

    want = known("cartpole")
    session, actions = AarenPolicy.load(MODELS / "cartpole").stream(), []
    for place, observation in enumerate(want["observations"]):
        actions.append(int(session.push(observation, 1.0 if place else None)))
    assert actions == want["actions"]
