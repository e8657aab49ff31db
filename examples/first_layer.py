"""Put an Aaren layer where an attention layer stood: train over whole sequences, then step along a stream.

The task: at every moment, say whether the stream's mean so far is positive.
"""

import torch
from torch import nn

from aaren.nn import Encoder, EncoderConfig


class RunningSign(nn.Module):
    """Embedding, encoder, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 32)
        self.encoder = Encoder(EncoderConfig(width=32, num_heads=4, num_layers=2, dropout=0.0))
        self.head = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one logit per item, (b, t)."""
        encoded, _ = self.encoder(self.embed(x))  # (b, t, 1) to (b, t, 32), every prefix at once
        return self.head(encoded).squeeze(-1)


def main() -> None:
    torch.manual_seed(0)
    model = RunningSign()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for update in range(150):
        x = torch.randn(32, 64, 1) + 0.5 * torch.randn(32, 1, 1)
        is_positive = (x.cumsum(dim=1).squeeze(-1) > 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), is_positive)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if update % 50 == 49:
            print(f"update {update + 1}: loss {loss.item():.3f}")

    model.eval()
    x = torch.randn(1, 200, 1) + 0.3
    with torch.inference_mode():
        at_once = model(x)
        folded = model.encoder.fold()  # for inference: about half the attention's parameters
        state = folded.init_state(1)
        for k in range(200):
            encoded, state = folded.step(model.embed(x[:, k]), state)
        one_by_one = model.head(encoded).squeeze(-1)
    print(f"after 200 items, at once: {at_once[0, -1]:.4f}, one by one: {one_by_one[0]:.4f}")
    print(f"the stream's whole memory: {state.nbytes:,} bytes, however long it runs")


if __name__ == "__main__":
    main()
