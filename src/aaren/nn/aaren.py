"""AarenAttention: causal self-attention with a learned, constant query, hence an RNN (paper, section 3.3).

    q' = W_q q + b_q     k_i = W_k x_i + b_k     v_i = W_v x_i + b_v     s_i = q'·k_i / sqrt(d), per head
    y_k = W_o (Σ_{i<=k} softmax(s_1..s_k)_i v_i) + b_o

Only q'·k_i is ever needed, never k_i itself: s = (W_k^T q')·x + q'·b_k, a (c, h) product instead of a (c, c)
one. All weights get the same gradients as with keys. Where W_k is no plain linear layer (an adapter, a hook,
a quantised one), it is called and the keys are computed.

FoldedAttention: the same layer for inference. W_q, W_k and the query have become one vector and one number
per head. The number cancels from an empty state but is kept, so that both layers can use the same states.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.nn.checks import (
    check_decay,
    check_item,
    check_scan_state,
    check_sequence,
    hide_padding,
)
from aaren.nn.dropout import drop
from aaren.nn.mixer import Mixer, ProjectedAttention, is_plain, require_plain
from aaren.nn.state import hash_weights, tensors_of
from aaren.ops import ScanState, scan_attention, step
from aaren.ops.checks import full_precision
from aaren.shapes import Activations, LogDecay, Mask, Scores, Token, TokenMask, Values


class AarenAttention(ProjectedAttention[ScanState]):
    """Attention over every prefix with one learned query: parallel over a sequence, recurrent in a stream.

    The query is one vector of size `width` that goes through W_q as a token's would: `width` parameters more
    than `SoftmaxAttention`, and nothing else differs. It starts as N(0, 1): it takes the place
    of a layer-normalised token, so it has the same scale, and the scores of both layers start with the same
    spread. (With a query near 0 the layer would start as a running mean, and W_q would get almost no
    gradient.)

    Dropout has no weight matrix to act on in a recurrence. With `dropout_on="weights"` each item is kept with
    probability 1 - p per sequence, head and item, and its *value* is scaled by 1 / (1 - p) or dropped, while
    the normaliser stays whole, as when a Transformer drops weights after its softmax; unlike there, all
    prefixes share the choice. With "output", dropout acts on the attention's result, before W_o.

    Args:
        width: c, of the tokens that come in and go out.
        num_heads: h; must divide width.
        qkv_bias: whether W_q, W_k and W_v have biases. The key bias has gradient exactly zero from an empty
            state (it shifts all scores alike); it is kept so that both layers have the same parameters.
        dropout: p, while training.
        dropout_on: "weights" or "output".
        device: where the parameters are made.
        dtype: what they are made of.

    >>> layer = AarenAttention(width=64, num_heads=4)
    >>> y, state = layer(torch.randn(2, 100, 64))           # every prefix at once
    >>> y_next, state = layer.step(torch.randn(2, 64), state)  # one more item, same memory
    >>> y.shape, y_next.shape, state.nbytes
    (torch.Size([2, 100, 64]), torch.Size([2, 64]), 1152)
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        dropout: float = 0.0,
        dropout_on: str = "weights",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            width,
            num_heads,
            qkv_bias=qkv_bias,
            dropout=dropout,
            dropout_on=dropout_on,
            device=device,
            dtype=dtype,
        )
        self.query = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        nn.init.normal_(self.query)

    def reset_parameters(self) -> None:
        """Draw all parameters again, as the constructor does."""
        nn.init.normal_(self.query)
        super().reset_parameters()

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> ScanState:
        """Return the state before the first item; float64 by default, so that endless streams stay exact."""
        device = device or self.query.device
        return ScanState.empty((batch_size, self.num_heads), self.head_width, dtype=dtype, device=device)

    def forward(
        self,
        x: Activations,
        state: ScanState | None = None,
        *,
        mask: Mask | None = None,
        log_decay: LogDecay | None = None,
    ) -> tuple[Activations, ScanState]:
        """Attend to every prefix at once.

        Args:
            x: (b, t, c).
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real. Padding may stand anywhere and may hold anything.
            log_decay: (b, t, h), <= 0: the memory's logarithmic decay before each item; padding does not
                decay.
        """
        check_sequence(x, self.width, mask)
        check_decay(log_decay, (*x.shape[:2], self.num_heads))
        x = hide_padding(x, mask)
        values: Values = self._split(self.v_proj(x))
        scores, offset = self._score(x)
        if state is not None:
            check_scan_state(state, x.shape[0], self.num_heads, self.head_width)
        if offset is not None:
            # From an empty state the offset cancels; times 0 it only gives the key bias a gradient of 0, not
            # none.
            scores = scores + (0.0 * offset if state is None else offset)
        outputs, final = scan_attention(
            scores,
            self._drop_values(values),
            mask=mask,
            log_decay=log_decay,
            initial_state=state,
        )
        if state is None and offset is not None:
            final = shift_scores(final, offset)
        return self._finish_values(outputs.flatten(-2)), final

    def step(
        self,
        x: Token,
        state: ScanState,
        *,
        mask: TokenMask | None = None,
        log_decay: Tensor | None = None,
    ) -> tuple[Token, ScanState]:
        """Take in one item per stream.

        Args:
            x: (b, c).
            state: from `init_state`, `forward` or an earlier `step`.
            mask: (b,) bool; a stream with False keeps its state bit for bit and repeats its output.
            log_decay: (b, h), <= 0.
        """
        check_item(x, self.width, mask, log_decay, state, self.num_heads)
        x = hide_padding(x, mask)
        score, offset = self._score(x)
        if offset is not None:
            score = score + offset
        value = self._drop_values(self._split(self.v_proj(x)))
        output, state = step(state, score, value, mask=mask, log_decay=log_decay)
        return self._finish_values(output.to(value.dtype).flatten(-2)), state

    def fold(self) -> Mixer[ScanState]:
        """Return a new module for inference: W_q, W_k and query become a vector and a number per head."""
        require_plain(self, linear=("q_proj", "k_proj", "v_proj", "out_proj"))
        with torch.no_grad():
            weight, offset = self.folded_keys()
            folded = FoldedAttention(
                self.width,
                self.num_heads,
                bias=offset is not None or self.v_proj.bias is not None,
                device=weight.device,
                dtype=weight.dtype,
            )
            folded.load_parts(self.v_proj, weight, offset, self.out_proj)
        folded.key_fingerprint = self._hash_keys()
        return folded

    def fingerprint(self) -> str:
        """Return a name of these weights; the folded layer has the same."""
        values_and_output = hash_weights([*tensors_of(self.v_proj), *tensors_of(self.out_proj)])
        return f"{self.num_heads}:{values_and_output}{self._hash_keys()}"

    def folded_keys(self) -> tuple[Tensor, Tensor | None]:
        """Return W_k^T q' / sqrt(d), (h, c), and q'·b_k / sqrt(d), (h,), or None where keys have no bias.

        Of plain projections: this reads the weight of W_k.
        """
        split = (self.num_heads, self.head_width)
        with full_precision(self.query.device.type):
            query = self._project_query()
            weight = (query.unsqueeze(1) @ self.k_proj.weight.view(*split, self.width)).squeeze(1)
            bias: Tensor | None = self.k_proj.bias
            return weight, None if bias is None else (query * bias.view(split)).sum(-1)

    def _hash_keys(self) -> str:
        """Name what folding makes one: query, W_q and W_k."""
        return hash_weights([self.query, *tensors_of(self.q_proj), *tensors_of(self.k_proj)])

    def _project_query(self) -> Tensor:
        # Adapters and quantised layers may expect a batch.
        query: Tensor = self.q_proj(self.query if is_plain(self.q_proj) else self.query.unsqueeze(0))
        scaled: Tensor = query.view(self.num_heads, self.head_width) * self.head_width**-0.5
        return scaled

    def _score(self, x: Tensor) -> tuple[Scores, Tensor | None]:
        """Return the scores (*, h) of x (*, c), and what is to be added to all of them, (h,), if anything."""
        if is_plain(self.k_proj):
            weight, offset = self.folded_keys()
            return project_scores(x, weight), offset
        with full_precision(x.device.type):
            keys = self._split(self.k_proj(x.to(self.query.dtype)))
            dtype = torch.promote_types(keys.dtype, torch.float32)
            return (keys.to(dtype) * self._project_query().to(dtype)).sum(-1), None

    def _split(self, x: Tensor) -> Values:
        return x.view(*x.shape[:-1], self.num_heads, self.head_width)

    def _drop_values(self, values: Values) -> Values:
        if not self.training or self.dropout == 0.0 or self.dropout_on != "weights":
            return values
        return values * drop(values.new_ones(values.shape[:-1]), self.dropout).unsqueeze(-1)


class FoldedAttention(Mixer[ScanState]):
    """What `AarenAttention.fold` returns: the same methods and states, half the parameters, no gradients.

    One weight of c + h rows gives values and scores together: a step makes one matrix product for both.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        self.num_heads = num_heads
        self.head_width = width // num_heads

        def frozen(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(shape, device=device, dtype=dtype), requires_grad=False)

        self.weight = frozen(width + num_heads, width)  # rows: values, then one score per head
        self.bias = frozen(width + num_heads) if bias else None
        self.out_weight = frozen(width, width)
        self.out_bias = frozen(width)
        self.key_fingerprint = ""  # of the query and weights that were folded, which are gone

    @torch.no_grad()
    def load_parts(
        self, v_proj: nn.Linear, weight: Tensor, offset: Tensor | None, out_proj: nn.Linear
    ) -> None:
        """Copy in the values' projection, the folded keys (h, c) and offsets (h,), the output projection."""
        self.weight.copy_(torch.cat([v_proj.weight, weight]))
        self.out_weight.copy_(out_proj.weight)
        if self.bias is not None:
            biases: tuple[Tensor | None, ...] = (v_proj.bias, offset)
            for rows, bias in zip(torch.split(self.bias, [self.width, self.num_heads]), biases, strict=True):
                if bias is not None:  # else it is 0, as made
                    rows.copy_(bias)
        self.out_bias.copy_(out_proj.bias)

    def extra_repr(self) -> str:
        return f"width={self.width}, num_heads={self.num_heads}"

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> ScanState:
        """Return the state before the first item; float64 unless asked otherwise."""
        device = device or self.weight.device
        return ScanState.empty((batch_size, self.num_heads), self.head_width, dtype=dtype, device=device)

    def forward(
        self,
        x: Activations,
        state: ScanState | None = None,
        *,
        mask: Mask | None = None,
        log_decay: LogDecay | None = None,
    ) -> tuple[Activations, ScanState]:
        """Attend to every prefix at once, as `AarenAttention.forward` does."""
        check_sequence(x, self.width, mask)
        check_decay(log_decay, (*x.shape[:2], self.num_heads))
        if state is not None:
            check_scan_state(state, x.shape[0], self.num_heads, self.head_width)
        # Two products, not one: a joint one would leave the values strided, and the kernel would copy them.
        value_bias, score_bias = (
            (None, 0.0) if self.bias is None else (self.bias[: self.width], self.bias[self.width :])
        )
        outputs, final = scan_attention(
            project_scores(x, self.weight[self.width :]) + score_bias,
            self._split(F.linear(x, self.weight[: self.width], value_bias)),
            mask=mask,
            log_decay=log_decay,
            initial_state=state,
        )
        return F.linear(outputs.flatten(-2), self.out_weight, self.out_bias), final

    def step(
        self,
        x: Token,
        state: ScanState,
        *,
        mask: TokenMask | None = None,
        log_decay: Tensor | None = None,
    ) -> tuple[Token, ScanState]:
        """Take in one item per stream, as `AarenAttention.step` does."""
        check_item(x, self.width, mask, log_decay, state, self.num_heads)
        item = F.linear(x, self.weight, self.bias)
        precise = item.to(state.m.dtype)
        value, score = precise[:, : self.width].view(state.w.shape), precise[:, self.width :]
        if item.dtype in (torch.bfloat16, torch.float16):  # too few digits for an exponent
            score = project_scores(x, self.weight[self.width :])
            score = score if self.bias is None else score + self.bias[self.width :]
        output, state = step(state, score, value, mask=mask, log_decay=log_decay)
        return F.linear(output.to(item.dtype).flatten(1), self.out_weight, self.out_bias), state

    def _split(self, x: Tensor) -> Values:
        return x.view(*x.shape[:-1], self.num_heads, self.head_width)

    def fingerprint(self) -> str:
        """Return a name of these weights, that of the layer they were folded from."""
        rows = None if self.bias is None else self.bias[: self.width]
        weights = [self.weight[: self.width], rows, self.out_weight, self.out_bias]
        return f"{self.num_heads}:{hash_weights(weights)}{self.key_fingerprint}"

    def fold(self) -> "FoldedAttention":
        """Return itself: there is nothing left to fold."""
        return self


def project_scores(x: Tensor, weight: Tensor) -> Scores:
    """Return x·weight per head, (*, h), in float32 at least.

    Args:
        x: (*, c).
        weight: (h, c), the folded keys.
    """
    dtype = torch.promote_types(weight.dtype, torch.float32)
    with full_precision(x.device.type):
        return F.linear(x.to(dtype), weight.to(dtype))


def shift_scores(state: ScanState, offset: Tensor) -> ScanState:
    """Return the state that its items would have left with `offset` (h,) added to all their scores."""
    shifted = state.m + offset.to(state.m.dtype)
    return state._replace(m=torch.where(state.u == 0, state.m, shifted))
