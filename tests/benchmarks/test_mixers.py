"""The mixers' benchmark: its process, its record and one short training."""

from pathlib import Path

import numpy as np
import pytest

import mixers
from records import read_record

RECORD = Path(__file__).parents[2] / "results" / "bench" / "mixers.json"


def test_the_chain_depends_on_two_events_and_knows_its_own_nats() -> None:
    events, nats = mixers.chain(2_000, np.random.default_rng(0))
    assert events.shape == (2_000, mixers.EVENTS)
    assert 0.0 < nats < np.log(mixers.KINDS)
    assert mixers.chain(2_000, np.random.default_rng(1))[1] == pytest.approx(nats, abs=0.05)


def test_the_table_has_a_row_for_every_mixer_that_was_run() -> None:
    record = read_record(RECORD, kind="mixers")
    assert {row["mixer"] for row in record.measurements} | mixers.digits().keys() == mixers.MIXERS.keys()
    (table,) = mixers.tables(record)
    assert all(f"| {name} |" in table for name in mixers.MIXERS)
    assert "Two layers of width 64" in table


def test_a_network_is_trained() -> None:
    assert mixers.excess("aaren, both", mixers.QUICK) > 0.0
