"""Train an encoder with Accelerate on any number of processes, then use it token by token.

pip install accelerate; torchrun --nproc-per-node 2 examples/train_with_accelerate.py. The encoder is a plain
nn.Module: Accelerate needs to know nothing else about it.
"""

import gc

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from aaren.nn import Encoder


class NextValue(nn.Module):
    """Predict the next value of a wave from all values so far."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encoder, self.head = (
            nn.Linear(1, 16),
            Encoder(width=16, num_heads=4),
            nn.Linear(16, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x))[0])


def waves(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    phase = 6.3 * torch.rand(count, 1, 1, generator=generator)
    return torch.sin(0.4 * torch.arange(33.0)[:, None] + phase)


def train(accelerator: Accelerator) -> tuple[NextValue, list[float]]:
    torch.manual_seed(0)
    model = NextValue()
    model, optimiser, loader = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        DataLoader(TensorDataset(waves(256)), batch_size=16, shuffle=True),
    )
    losses = []
    for _ in range(5):
        for (batch,) in loader:
            optimiser.zero_grad()
            loss = nn.functional.mse_loss(model(batch[:, :-1]), batch[:, 1:])
            accelerator.backward(loss)
            optimiser.step()
            losses.append(float(loss.detach()))
    return accelerator.unwrap_model(model), losses


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model, losses = train(accelerator)
    model.eval()
    x, state = waves(1)[:, :-1], model.encoder.init_state(1)
    with torch.no_grad():
        for token in model.embed(x).unbind(1):
            y, state = model.encoder.step(token, state)
        torch.testing.assert_close(model.head(y), model(x)[:, -1], rtol=1e-4, atol=1e-5)
    if accelerator.is_main_process:
        print(f"loss {losses[0]:.3f}, then {losses[-1]:.3f}, on {accelerator.num_processes} processes")
    # Threads of gloo outlive a process group that is still referred to, and abort the process at its exit.
    accelerator.free_memory()
    gc.collect()
    accelerator.end_training()


if __name__ == "__main__":
    main()
