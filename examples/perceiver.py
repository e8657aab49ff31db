"""Latents that read a stream, as in Perceiver's cross-attention (paper, Figure 1c), one item at a time.

Every latent is a query, and so an RNN of its own. As long as the first latents do not depend on the input, a
new item costs O(latents) and nothing is read twice. Perceiver's deeper layers ask again with latents that the
input has changed: those must read the whole stream anew. Here the latents attend to one another instead;
that does not touch the state.
"""

import torch
from torch import Tensor, nn

from aaren.ops import ScanState, attend


class LatentReader(nn.Module):
    """Learned latents attend to all items so far, then to one another."""

    def __init__(self, width: int, num_latents: int, num_heads: int = 4) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.latents = nn.Parameter(torch.randn(num_latents, width) / width**0.5)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.mix = nn.TransformerEncoderLayer(width, num_heads, 2 * width, dropout=0.0, batch_first=True)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))  # (b, n, h, d)

    def forward(self, x: Tensor, state: ScanState | None = None) -> tuple[Tensor, ScanState]:
        latents = self.latents.expand(len(x), -1, -1)
        query, keys, values = self.query(latents), self.key(x), self.value(x)
        seen, state = attend(*map(self.split, (query, keys, values)), initial_state=state)
        return self.mix(latents + self.out(seen.flatten(-2))), state


if __name__ == "__main__":
    torch.manual_seed(0)
    reader = LatentReader(width=32, num_latents=8).eval()
    stream = torch.randn(2, 500, 32)
    with torch.no_grad():
        whole, _ = reader(stream)  # all items at once, in parallel
        state = None
        for item in stream.unbind(1):
            answer, state = reader(item.unsqueeze(1), state)  # one more item, same memory
    torch.testing.assert_close(answer, whole, rtol=1e-4, atol=1e-5)
    size = sum(part.nbytes for part in state) // len(stream)
    print(f"8 latents after 500 items: {size:,} bytes a stream; one by one as all at once")
