"""Ten minutes of a durable pool at half of what it can do: no error, and memory stays."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig
from aaren.stream.pool import StreamPool

BATCH, KEYS = 512, 20_000
SECONDS = 600.0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_stays_over_ten_minutes_at_half_speed(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = StreamingForecaster(
            StreamingForecasterConfig(
                num_series=1, num_marks=0, horizon_steps=1, width=64, num_heads=4, num_layers=4
            )
        ).eval()
    generator = np.random.default_rng(0)
    items = generator.standard_normal((BATCH, 1)).astype(np.float32)
    with StreamPool(model, tmp_path / "states.db", capacity=KEYS // 4) as pool:

        def push() -> None:
            answers = pool.push([f"key {key}" for key in generator.integers(0, KEYS, BATCH).tolist()], items)
            assert bool(torch.stack(answers).isfinite().all())
            pool.commit()

        begun, count = time.monotonic(), 0
        while time.monotonic() - begun < 20.0:
            push()
            count += 1
        pause = (time.monotonic() - begun) / count  # as long again after each push: half of the maximum
        sizes = []
        begun, next_look = time.monotonic(), time.monotonic() + 60.0
        while time.monotonic() - begun < SECONDS:
            push()
            time.sleep(pause)
            if time.monotonic() >= next_look:
                sizes.append(resident_bytes())
                next_look += 60.0
        print(
            f"{BATCH * count / 20.0:,.0f} items/s at most; resident MB: {[size // 10**6 for size in sizes]}"
        )
        assert max(sizes) <= 1.02 * sizes[0]
        assert len(pool) <= KEYS
