"""When does the next event come, and of what kind? Train on a clustered process, then ask a live stream."""

import numpy as np
import torch

from aaren.events.batches import EventBatch, EventBatches
from aaren.events.data import true_process
from aaren.events.distribution import Events
from aaren.events.likelihood import log_likelihood
from aaren.events.model import EventModel, EventModelConfig


def main() -> None:
    torch.manual_seed(0)
    hawkes = true_process("hawkes")  # events excite more events
    train = hawkes.sample(200, horizon=50.0, rng=np.random.default_rng(0))
    test = hawkes.sample(50, horizon=50.0, rng=np.random.default_rng(1))
    model = EventModel(EventModelConfig(width=32, ff_width=32, time_decay="learned"))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)

    def explain(batch: EventBatch) -> torch.Tensor:
        events = Events(batch.gaps, batch.marks - 1)
        return log_likelihood(model, events, mask=batch.mask, final_gaps=batch.final_gaps)

    batches = EventBatches(train, batch_size=16)
    for epoch in range(8):
        for batch in batches.epoch(epoch):
            optimiser.zero_grad()
            (-explain(batch) / batch.mask.sum()).backward()
            optimiser.step()
    model.eval()
    with torch.no_grad():
        found = -sum(float(explain(batch)) for batch in EventBatches(test)) / test.num_events
    truth = hawkes.nll_per_event(test, final_interval=True)
    print(f"nats per event: model {found:.3f}, the process itself {truth:.3f}")

    stream = model.stream(start=0.0)  # one stream, one event at a time, constant memory
    for time in (3.0, 3.2, 3.3):  # a burst
        coming = stream.push(time)
    print(f"after a burst: median wait {coming.median():.2f}, P(quiet for 5) = {coming.survival(5.0):.2f}")
    coming = stream.push(20.0)  # long quiet, then one event
    print(f"after a pause: median wait {coming.median():.2f}, P(quiet for 5) = {coming.survival(5.0):.2f}")
    print(f"the state takes {stream.state.nbytes:,} bytes, for ever")

    generator = torch.Generator().manual_seed(0)
    futures = stream.forecaster.simulate(stream.state, num_branches=500, horizon=10.0, generator=generator)
    counts = futures.counts[0].double()
    print(
        f"events in the next 10: {counts.mean():.1f} on average, 90 % of futures at most "
        f"{counts.quantile(0.9):.0f}"
    )


if __name__ == "__main__":
    main()
