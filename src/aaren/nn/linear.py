"""Linear recurrences with the Mixer's methods: linear attention, RetNet's retention and the minimal GRU.

    linear    S_k = S_{k-1} + φ(k_k) (v_k, 1)^T           y_k = φ(q_k) S_k, divided by its last column
    retnet    S_k = γ S_{k-1} + k_k v_k^T                 y_k = gate * norm(q_k S_k), γ fixed per head
    mingru    h_k = (1 - z_k) h_{k-1} + z_k g(W x_k)      y_k = h_k, z_k = sigmoid(W_z x_k)

The first two keep a matrix per head and go through a sequence in chunks: inside one, all pairs at once;
between them, the state. The third is `scan_attention` with scores log z and log_decay log(1 - z): from a
state of weight 1 the weights of all items up to any k add up to 1, so the attention's mean is h.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.nn.checks import check_tensor_state, require_divides
from aaren.nn.dropout import drop
from aaren.nn.mixer import PlainMixer, any_weight
from aaren.ops import ScanState, read, scan_attention
from aaren.ops.checks import full_precision
from aaren.ops.state import default_state_dtype
from aaren.shapes import Activations, Mask, Token, TokenMask

CHUNK = 64  # items whose pairs are computed together
SMALLEST_WEIGHT = 1e-6  # beside a sum of features, so that none of all is 0 and not 0 / 0


class MatrixState(NamedTuple):
    """What a linear attention remembers: a sum of outer products per head."""

    sums: Tensor  # (b, h, d, e): features of keys by values


class LinearAttention(PlainMixer[MatrixState]):
    """Attention without a softmax: features of queries and keys, elu(x) + 1, weigh the values.

    Katharopoulos et al., 2020, "Transformers are RNNs" (arXiv 2006.16236). Every item has its own query, and
    the state is a matrix per head: h·d·(d + 1) numbers, float64, as its sums never stop growing.

    Args:
        width: c.
        num_heads: h; must divide width.
        qkv_bias: whether queries, keys and values have biases.
        dropout: on the result, before W_o, while training.
        device: where the parameters are made.
        dtype: what they are made of.

    >>> layer = LinearAttention(width=64, num_heads=4)
    >>> y, state = layer(torch.randn(2, 100, 64))
    >>> y.shape, state.sums.shape
    (torch.Size([2, 100, 64]), torch.Size([2, 4, 16, 17]))
    """

    name = "linear"
    is_gated = False

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_divides("num_heads", num_heads, "width", width)
        super().__init__(width, dropout)
        self.num_heads = num_heads
        self.head_width = width // num_heads
        # Beside the values a 1, which adds up the weights; what is normed and gated needs no such sum.
        self.value_width = self.head_width + (not self.is_gated)
        self.q_proj = nn.Linear(width, width, bias=qkv_bias, device=device, dtype=dtype)
        self.k_proj = nn.Linear(width, width, bias=qkv_bias, device=device, dtype=dtype)
        self.v_proj = nn.Linear(width, width, bias=qkv_bias, device=device, dtype=dtype)
        self.out_proj = nn.Linear(width, width, device=device, dtype=dtype)
        if self.is_gated:
            self.gate_proj = nn.Linear(width, width, bias=qkv_bias, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        return f"width={self.width}, num_heads={self.num_heads}, dropout={self.dropout}"

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> MatrixState:
        """Return sums of nothing; float64 unless asked otherwise."""
        device = torch.device(device or any_weight(self).device)
        shape = (batch_size, self.num_heads, self.head_width, self.value_width)
        return MatrixState(torch.zeros(shape, dtype=dtype or default_state_dtype(device), device=device))

    def fingerprint(self) -> str:
        """Return a name of these weights and of how they are used."""
        return f"{self.num_heads}:{super().fingerprint()}"

    def _run_sequence(
        self, x: Activations, state: MatrixState, mask: Mask | None
    ) -> tuple[Activations, MatrixState]:
        query, keys, values = self._project(x)  # (b, t, h, d or e)
        log_decay = self._log_decay(keys)
        if mask is not None:
            keys = keys.masked_fill(~mask[..., None, None], 0.0)
            log_decay = log_decay.expand(*mask.shape, -1).masked_fill(~mask.unsqueeze(-1), 0.0)
        else:
            log_decay = log_decay.expand(*x.shape[:2], -1)
        sums, found = state.sums, []
        with full_precision(x.device.type):
            for start in range(0, x.shape[1], CHUNK):
                part = slice(start, start + CHUNK)
                chunk = [item[:, part].transpose(1, 2) for item in (query, keys, values, log_decay)]
                outputs, sums = _run_chunk(chunk, sums)
                found.append(outputs.transpose(1, 2))
        outputs = torch.cat(found, dim=1) if found else values
        return self._finish(outputs, x), MatrixState(sums)

    def _run_item(self, x: Token, state: MatrixState, mask: TokenMask | None) -> tuple[Token, MatrixState]:
        query, key, value = (part.to(state.sums.dtype) for part in self._project(x))  # (b, h, d or e)
        decay = self._log_decay(key).exp()[:, None, None]
        sums = state.sums * decay + key.unsqueeze(-1) * value.unsqueeze(-2)
        if mask is not None:
            sums = torch.where(mask[:, None, None, None], sums, state.sums)
        return self._finish((query.unsqueeze(-1) * sums).sum(-2), x), MatrixState(sums)

    def _check_state(self, state: MatrixState, batch_size: int) -> None:
        check_tensor_state(
            state, MatrixState, (batch_size, self.num_heads, self.head_width, self.value_width)
        )

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return features of queries and keys, and values: (*, h, d or e), float32 at least."""
        query, keys, values = (self._split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        values = torch.cat([values, values.new_ones(*values.shape[:-1], 1)], dim=-1)
        return _features(query), _features(keys), values

    def _split(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        return x.view(*x.shape[:-1], self.num_heads, self.head_width)

    def _log_decay(self, like: Tensor) -> Tensor:
        return like.new_zeros(self.num_heads)

    def _finish(self, outputs: Tensor, x: Tensor) -> Tensor:
        means = outputs[..., :-1] / (outputs[..., -1:] + SMALLEST_WEIGHT)
        return self._finish_values(means.flatten(-2).to(x.dtype))

    def _finish_values(self, values: Tensor) -> Tensor:
        if self.training:
            values = drop(values, self.dropout)
        projected: Tensor = self.out_proj(values)
        return projected


class Retention(LinearAttention):
    """RetNet's retention: linear attention whose heads forget, each at its own fixed rate, normed and gated.

    Sun et al., 2023, "Retentive Network" (arXiv 2307.08621): head i keeps 1 - 2^(-5 - i) of its sums from
    item to item. Positions by rotation (xPos), which the paper adds, are left out: use `position=`.
    """

    name = "retnet"
    is_gated = True

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, keys, values = (self._split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        return query * self.head_width**-0.5, keys, values

    def _log_decay(self, like: Tensor) -> Tensor:
        heads = torch.arange(self.num_heads, dtype=like.dtype, device=like.device)
        return torch.log1p(-torch.exp2(-5.0 - heads))

    def _finish(self, outputs: Tensor, x: Tensor) -> Tensor:
        normed = F.layer_norm(outputs, (self.head_width,)).flatten(-2).to(x.dtype)
        return self._finish_values(F.silu(self.gate_proj(x)) * normed)


def _features(x: Tensor) -> Tensor:
    """Return elu(x) + 1, which is positive; written out, as the gradient of `F.elu` does not compile."""
    return F.relu(x) + x.clamp(max=0.0).exp()


def _run_chunk(chunk: list[Tensor], sums: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of a chunk, (b, h, n, e), and the state after it.

    Args:
        chunk: queries and keys (b, h, n, d), values (b, h, n, e), log_decay (b, h, n) before each item.
        sums: (b, h, d, e), the state before the chunk.
    """
    query, keys, values, log_decay = chunk
    decayed = log_decay.cumsum(-1)
    is_later = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool, device=query.device).triu(1)
    between = (decayed.unsqueeze(-1) - decayed.unsqueeze(-2)).masked_fill(is_later, -torch.inf).exp()
    outputs = (query @ keys.mT * between) @ values
    outputs = outputs + query * decayed.exp().unsqueeze(-1) @ sums.to(query.dtype)
    kept = (decayed[..., -1:] - decayed).exp().unsqueeze(-1)
    added = (keys * kept).to(sums.dtype).mT @ values.to(sums.dtype)
    return outputs, sums * decayed[..., -1, None, None].exp().to(sums.dtype) + added


class MinGRUState(NamedTuple):
    """What a minimal GRU remembers: its last output."""

    hidden: Tensor  # (b, c)


class MinGRU(PlainMixer[MinGRUState]):
    """The minimal GRU: gates that do not depend on the state, so that all items can be computed at once.

    Feng et al., 2024, "Were RNNs All We Needed?" (arXiv 2410.01201), in its log-space form: candidates go
    through g(x) = x + 0.5 for x >= 0, sigmoid(x) below, and are positive.

    Args:
        width: c, of input, output and memory.
        dropout: on the outputs, while training.
        device: where the parameters are made.
        dtype: what they are made of.
    """

    name = "mingru"
    has_loop = False

    def __init__(
        self,
        width: int,
        *,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(width, dropout)
        self.gate_proj = nn.Linear(width, width, device=device, dtype=dtype)
        self.candidate_proj = nn.Linear(width, width, device=device, dtype=dtype)

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> MinGRUState:
        """Return zeros, in the weights' dtype unless asked otherwise."""
        weight = any_weight(self)
        shape, device = (batch_size, self.width), device or weight.device
        return MinGRUState(torch.zeros(shape, dtype=dtype or weight.dtype, device=device))

    def _run_sequence(
        self, x: Activations, state: MinGRUState, mask: Mask | None
    ) -> tuple[Activations, MinGRUState]:
        gates, candidates = self._project(x)
        log_keep = F.logsigmoid(-gates)
        if mask is not None:
            log_keep = log_keep.masked_fill(~mask.unsqueeze(-1), 0.0)
        hidden = state.hidden.to(default_state_dtype(x.device))
        before = ScanState(torch.zeros_like(hidden), torch.ones_like(hidden), hidden.unsqueeze(-1))
        outputs, after = scan_attention(
            F.logsigmoid(gates),
            candidates.unsqueeze(-1),
            mask=mask,
            log_decay=log_keep,
            initial_state=before,
        )
        after_items = MinGRUState(read(after).squeeze(-1).to(state.hidden.dtype))
        return self._finish(outputs.squeeze(-1), x), after_items

    def _run_item(self, x: Token, state: MinGRUState, mask: TokenMask | None) -> tuple[Token, MinGRUState]:
        gates, candidates = self._project(x)
        hidden = state.hidden
        new = torch.lerp(hidden, candidates.to(hidden.dtype), torch.sigmoid(gates).to(hidden.dtype))
        if mask is not None:
            new = torch.where(mask.unsqueeze(-1), new, hidden)
        return self._finish(new, x), MinGRUState(new)

    def _check_state(self, state: MinGRUState, batch_size: int) -> None:
        check_tensor_state(state, MinGRUState, (batch_size, self.width))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gates' arguments, float32 at least as they are exponents, and the candidates."""
        gates, candidates = self.gate_proj(x), self.candidate_proj(x)
        gates = gates.to(torch.promote_types(gates.dtype, torch.float32))
        return gates, torch.where(candidates >= 0, candidates + 0.5, torch.sigmoid(candidates))

    def _finish(self, outputs: Tensor, x: Tensor) -> Tensor:
        outputs = outputs.to(x.dtype)
        return drop(outputs, self.dropout) if self.training else outputs
