# extras: report
# %% [markdown]
# # Your own model: train in parallel, run one item at a time
#
# An `Encoder` stands where a Transformer's encoder stood. The task: after every item, is the stream's mean
# so far positive?

# %%
import torch
from torch import nn

from aaren.nn import Encoder


class RunningSign(nn.Module):
    def __init__(self, mixer: str = "aaren") -> None:
        super().__init__()
        self.embed = nn.Linear(1, 32)
        self.encoder = Encoder(width=32, num_heads=4, num_layers=2, dropout=0.0, mixer=mixer)
        self.head = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        encoded, _ = self.encoder(self.embed(x))  # (b, t, 1) to (b, t, 32): every prefix at once
        return self.head(encoded).squeeze(-1)


# %% [markdown]
# Training is plain PyTorch. `mixer="softmax"` makes the same stack a Transformer; `"gru"`, `"mingru"`,
# `"wkv"` and others are one word away too.

# %%
torch.manual_seed(0)
losses, models = {}, {}
for mixer in ("aaren", "softmax"):
    models[mixer] = model = RunningSign(mixer)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        x = torch.randn(32, 64, 1) + 0.5 * torch.randn(32, 1, 1)
        is_positive = (x.cumsum(dim=1).squeeze(-1) > 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), is_positive)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    losses[mixer] = round(loss.item(), 3)
print(losses)

# %% [markdown]
# **Run it**: `fold()` leaves out what inference does not need; `step` takes one item and a state, and
# returns both. The last answer is that of the whole sequence at once.

# %%
trained = models["aaren"].eval()
x = torch.randn(1, 200, 1) + 0.3
with torch.inference_mode():
    at_once = trained(x)[0, -1]
    folded = trained.encoder.fold()
    state = folded.init_state(1)
    for item in x.unbind(1):
        encoded, state = folded.step(trained.embed(item), state)
    one_by_one = trained.head(encoded)[0, 0]
print(f"at once {at_once:.5f}, one by one {one_by_one:.5f}; state: {state.nbytes:,} bytes")

# %% [markdown]
# **Memory**: what Aaren carries stays the same; a Transformer keeps every item.

# %%
import matplotlib.pyplot as plt

plt.figure(figsize=(5, 2.5))
for mixer in ("aaren", "softmax"):
    encoder = Encoder(width=32, num_heads=4, num_layers=2, mixer=mixer).eval()
    state, sizes = encoder.init_state(1), []
    with torch.inference_mode():
        for _ in range(500):
            _, state = encoder.step(torch.randn(1, 32), state)
            sizes.append(state.nbytes / 1e3)
    plt.plot(sizes, label=mixer)
plt.xlabel("items")
plt.ylabel("kilobytes carried")
plt.legend()
plt.tight_layout()

# %% [markdown]
# **Order**: a layer without decay sees a *set* of items. Where order matters, tell it:
# `position="learned"`, `conv=Conv(kernel=4)` or `decay="learned"`.

# %%
plain = Encoder(width=32, num_heads=4, num_layers=1).eval()
ordered = Encoder(width=32, num_heads=4, num_layers=1, decay="learned").eval()
with torch.inference_mode():
    x = torch.randn(1, 10, 32)
    swapped = x[:, [1, 0, *range(2, 10)]]
    for name, encoder in {"plain": plain, "with decay": ordered}.items():
        moved = (encoder(x)[0][0, -1] - encoder(swapped)[0][0, -1]).abs().max()
        print(f"{name:10} first two items swapped: the last answer moves by {moved:.1e}")
