"""Fits in threads: each gives what it gives alone, and leaves no trace in the process."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aaren.forecasting.estimator import AarenForecaster

pytest.importorskip("sklearn")

from support.wave_classifier import small, waves

PLACES = 3


def fit_classifier(place: int) -> dict[str, torch.Tensor]:
    settings: list[dict[str, Any]] = [
        {"mixer": "aaren", "threads": 0, "validation_fraction": 0.2},
        {"mixer": "softmax", "threads": 1},
        {"mixer": "lstm", "threads": 2},
    ]
    model = small(epochs=2, random_state=place, dropout=0.3, **settings[place]).fit(*waves())
    return dict(model.model_.state_dict())


def fit_forecaster(place: int) -> dict[str, torch.Tensor]:
    days = pd.date_range("2024-01-01", periods=120, freq="D")
    frame = pd.DataFrame({"unique_id": "a", "ds": days, "y": np.sin(np.arange(120.0))})
    model = AarenForecaster(
        4, width=16, num_layers=1, updates=8, batch_size=16, random_state=place, threads=1 + place % 2
    ).fit(frame)
    return dict(model.model_.state_dict())


@contextmanager
def somebody_drawing() -> Iterator[list[torch.Tensor]]:
    """Have another thread draw from torch's generator all the time."""
    is_over, drawn = threading.Event(), list[torch.Tensor]()

    def draw() -> None:
        while not is_over.is_set():
            drawn.append(torch.rand(2))
            is_over.wait(1e-4)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield drawn
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("fit", [fit_classifier, fit_forecaster])
def test_fits_in_threads_equal_fits_in_turn(fit: Callable[[int], dict[str, torch.Tensor]]) -> None:
    alone = [fit(place) for place in range(PLACES)]
    with ThreadPoolExecutor(PLACES) as pool, somebody_drawing():
        together = list(pool.map(fit, [*range(PLACES)] * 2))
    for place, found in enumerate(together):
        for name, wanted in alone[place % PLACES].items():
            assert torch.equal(found[name], wanted), (place, name)


@pytest.mark.parametrize("fit", [fit_classifier, fit_forecaster])
def test_a_fit_leaves_no_trace_in_the_process(fit: Callable[[int], dict[str, torch.Tensor]]) -> None:
    def switches() -> tuple[object, ...]:
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            dict(os.environ),
        )

    before = switches()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        with ThreadPoolExecutor(PLACES) as pool, somebody_drawing() as drawn:
            list(pool.map(fit, range(PLACES)))
        torch.manual_seed(7)
        undisturbed = [torch.rand(2) for _ in drawn]
    assert len(drawn) > 20
    assert all(torch.equal(one, other) for one, other in zip(drawn, undisturbed, strict=True))
    assert switches() == before


def test_threads_begun_during_a_fit_have_the_threads_of_the_process() -> None:
    counts: list[int] = []
    before = torch.get_num_threads()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(fit_forecaster, 1)  # on two threads
        while not running.done():
            thread = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
            thread.start()
            thread.join()
            time.sleep(0.01)
    assert counts.count(before) >= len(counts) - 1  # one may begin in the very moment of the switch
