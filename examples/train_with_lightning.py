"""Train an encoder with Lightning on two processes, then use it token by token.

pip install lightning. The encoder is a plain nn.Module: Lightning needs to know nothing else about it.
"""

import gc
import logging

import lightning
import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from aaren.nn import Encoder


class NextValue(lightning.LightningModule):
    """Predict the next value of a wave from all values so far."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encoder, self.head = (
            nn.Linear(1, 16),
            Encoder(width=16, num_heads=4),
            nn.Linear(16, 1),
        )
        self.losses: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x))[0])

    def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
        loss = nn.functional.mse_loss(self(batch[0][:, :-1]), batch[0][:, 1:])
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def waves(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    phase = 6.3 * torch.rand(count, 1, 1, generator=generator)
    return torch.sin(0.4 * torch.arange(33.0)[:, None] + phase)


def main() -> None:
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.manual_seed(0)
    model = NextValue()
    trainer = lightning.Trainer(
        max_epochs=5,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(waves(256)), batch_size=16, shuffle=True, num_workers=0))

    model.eval()
    x, state = waves(1)[:, :-1], model.encoder.init_state(1)
    with torch.no_grad():
        for token in model.embed(x).unbind(1):
            y, state = model.encoder.step(token, state)
        torch.testing.assert_close(model.head(y), model(x)[:, -1], rtol=1e-4, atol=1e-5)
    if trainer.is_global_zero:
        print(f"loss {model.losses[0]:.3f}, then {model.losses[-1]:.3f}, on {trainer.world_size} processes")
    # Threads of gloo outlive a process group that is still referred to, and abort the process at its exit.
    del trainer
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
