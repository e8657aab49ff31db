from pathlib import Path

import numpy as np
import pytest

from aaren.datasets import catalogue as registry
from aaren.errors import ConfigError, DataError
from aaren.events import data as events
from aaren.events import files as event_files
from aaren.events.sequences import EventSequences


def numbered(count: int, split: list[int] | None = None) -> EventSequences:
    made = EventSequences.from_lists([[float(i), float(i) + 1] for i in range(count)])
    return made if split is None else made.with_split(np.asarray(split))


def starts(part: EventSequences) -> list[float]:
    return part.times[part.offsets[:-1]].tolist()


def test_fractions_are_cut_by_floor_in_file_order() -> None:
    parts = events.split(numbered(14))
    assert (starts(parts.train), starts(parts.validation), starts(parts.test)) == (
        [0, 1, 2, 3, 4, 5, 6, 7],
        [8, 9],
        [10, 11, 12, 13],
    )


def test_the_sources_split_is_taken_where_it_is_whole() -> None:
    parts = events.split(numbered(5, [2, 0, 1, 0, 2]))
    assert (starts(parts.train), starts(parts.validation), starts(parts.test)) == ([1, 3], [2], [0, 4])
    assert parts.rule == "as in the source"


def test_without_validation_the_last_tenth_of_train_becomes_it() -> None:
    parts = events.split(numbered(27, [0] * 25 + [2] * 2))
    assert (len(parts.train), starts(parts.validation), starts(parts.test)) == (23, [23, 24], [25, 26])
    assert "last tenth" in parts.rule


def test_a_split_without_train_is_not_used_unless_asked_for() -> None:
    half = numbered(10, [1] * 5 + [2] * 5)
    assert len(events.split(half).train) == 6
    with pytest.raises(DataError, match="no split with train and test parts"):
        events.split(half, rule="source")
    with pytest.raises(ConfigError, match="unknown split rule 'sources'; did you mean 'source'"):
        events.split(half, rule="sources")
    with pytest.raises(DataError, match="4 sequences are too few"):
        events.split(numbered(4))


def test_our_sin_is_as_the_protocol_says() -> None:
    sin = events.load("sin")
    assert len(sin) == 1000
    assert sin.num_events / 1000 == pytest.approx(100.5, abs=1.0)
    assert sin.observed_until is not None
    assert sin.observed_until[0] == pytest.approx(32 * np.pi)
    process = events.true_process("sin")
    # One set of 100,000 events: the protocol's simulated 0.683 and ln 2, each within three standard errors.
    assert process.nll_per_event(sin) == pytest.approx(0.683, abs=0.009)
    assert process.nll_per_event(sin, final_interval=True) == pytest.approx(np.log(2), abs=0.009)


@pytest.mark.parametrize("name", sorted(events.PROCESSES))
def test_generated_sets_repeat_with_their_seed(name: str) -> None:
    first, again = events.generate(name, count=20, seed=4), events.generate(name, count=20, seed=4)
    np.testing.assert_array_equal(first.times, again.times)
    assert not np.array_equal(first.times[:10], events.generate(name, count=20, seed=5).times[:10])
    assert first.num_events / 20 == pytest.approx(100, rel=0.35)


def test_a_generated_set_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    path = events.make("poisson", count=30)
    assert path == tmp_path / "events" / "poisson.npz"
    written = event_files.read(path)
    assert (len(written), len(events.split(written, rule="source").validation)) == (30, 6)


def test_unknown_and_strange_names_are_told() -> None:
    with pytest.raises(ConfigError, match="unknown generated event set 'hawks'; did you mean 'hawkes'"):
        events.generate("hawks")
    with pytest.raises(ConfigError, match="ETTh1 is a forecasting set; this reads events"):
        events.load("ETTh1")


def test_a_missing_file_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"no file events/wiki\.npz .* aaren data fetch wiki"):
        events.load("wiki")


@pytest.mark.parametrize(
    ("name", "sizes", "unit"),
    [
        ("mimic", (527, 58, 65), "years"),
        ("wiki", (600, 200, 200), "seconds"),
        ("stackoverflow-partial", (3424, 378, 1326), "seconds"),
        ("mooc-partial", (1522, 507, 508), "seconds"),
        ("uber-sample", (352, 117, 118), "hours"),
        ("taxi-tritpp", (109, 36, 37), "hours"),
    ],
)
def test_the_mirror_holds_what_the_registry_says(
    name: str, sizes: tuple[int, int, int], unit: str, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    dataset = registry.lookup(name)
    measured = events.measure(dataset)
    assert {key: measured[key] for key in dataset.facts} == dict(dataset.facts)
    assert (measured["train"], measured["validation"], measured["test"]) == sizes
    assert measured["unit"] == unit


def test_the_taxi_day_has_known_ends(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    taxi = events.load("taxi-tritpp")
    assert taxi.final_gaps is not None
    np.testing.assert_allclose(np.add.reduceat(taxi.gaps, taxi.offsets[:-1]) + taxi.final_gaps, 24.0)
