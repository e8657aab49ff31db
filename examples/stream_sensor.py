"""Many sensors, one model, readings at their own pace: step, save and restore a batch of streams."""

import torch

from aaren.nn import Encoder, EncoderConfig
from aaren.nn.blocks import state_from_bytes, state_to_bytes

NUM_SENSORS, WIDTH = 8, 32


def main() -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(width=WIDTH, num_heads=4, num_layers=2, decay="learned")).fold()
    embed = torch.nn.Linear(3, WIDTH)  # a reading has three channels
    state = encoder.init_state(NUM_SENSORS)

    with torch.inference_mode():
        for tick in range(1, 501):
            readings = torch.randn(NUM_SENSORS, 3)
            has_reading = torch.rand(NUM_SENSORS) < 0.3  # the others keep their state, bit for bit
            _, state = encoder.step(embed(readings), state, mask=has_reading)
            if tick in (10, 500):
                print(f"tick {tick:3}: {state.nbytes / NUM_SENSORS:.0f} bytes per sensor")

        # The process ends; another one resumes with sensor 3 alone.
        name = encoder.fingerprint()
        blob = state_to_bytes(state.select([3]), fingerprint=name)
        restored = state_from_bytes(blob, like=encoder.init_state(1), fingerprint=name)
        reading = torch.randn(1, 3)
        here, _ = encoder.step(embed(reading), state.select([3]))
        there, _ = encoder.step(embed(reading), restored)
    print(f"saved state: {len(blob):,} bytes; resumes identically: {torch.equal(here, there)}")


if __name__ == "__main__":
    main()
