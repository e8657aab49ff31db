"""AarenAttention: causal self-attention with a learned, constant query, hence an RNN (paper, section 3.3).

    q' = W_q q + b_q     k_i = W_k x_i + b_k     v_i = W_v x_i + b_v     s_i = q'·k_i / sqrt(d), per head
    y_k = W_o (Σ_{i<=k} softmax(s_1..s_k)_i v_i) + b_o

Only q'·k_i is ever needed, never k_i itself: s = (W_k^T q')·x + q'·b_k, a (c, h) product instead of a (c, c)
one. All weights get the same gradients as with keys. Where W_k is no plain linear layer (an adapter, a hook,
a quantised one), it is called and the keys are computed.

Gates make of the constant query's set a memory that forgets and chooses what to say (as the sLSTM of xLSTM,
arXiv 2405.04517, without hidden-to-hidden weights; the forget gate is that of FoX, arXiv 2503.02130):

    forget    log_decay_k = log sigmoid(W_f x_k + b_f), a number per head, added to any other decay
    output    y_k = W_o (2 sigmoid(W_g x_k + b_g) * the average) + b_o, channel by channel

FoldedAttention: the same layer for inference. W_q, W_k and the query have become one vector and one number
per head. The number cancels from an empty state but is kept, so that both layers can use the same states.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import unknown_name
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

GATES = ("none", "forget", "output", "both")
HALF_LIVES = (2.0, 1024.0)  # items, of the first and the last head's forget gate before training
FORGET_SCALE = 0.3  # of the forget gate's weights before training


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

    Forget gates start with half-lives from 2 to 1,024 items, in even ratios over the heads; output gates near
    1.

    Args:
        width: c, of the tokens that come in and go out.
        num_heads: h; must divide width. Each head is one weighting of the past; more heads, more weightings.
        gates: "none", "forget", "output" or "both".
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
        gates: str = "none",
        qkv_bias: bool = True,
        dropout: float = 0.0,
        dropout_on: str = "weights",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if gates not in GATES:
            raise unknown_name("gates", gates, GATES)
        super().__init__(
            width,
            num_heads,
            qkv_bias=qkv_bias,
            dropout=dropout,
            dropout_on=dropout_on,
            device=device,
            dtype=dtype,
        )
        self.gates = gates
        self.query = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        nn.init.normal_(self.query)
        self.forget_proj: nn.Linear | None = None
        if gates in ("forget", "both"):
            self.forget_proj = nn.Linear(width, num_heads, device=device, dtype=dtype)
            self._spread_half_lives(self.forget_proj)
        self.gate_proj: nn.Linear | None = None
        if gates in ("output", "both"):
            self.gate_proj = nn.Linear(width, width, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw all parameters again, as the constructor does."""
        nn.init.normal_(self.query)
        super().reset_parameters()
        for projection in self._gate_projections():
            projection.reset_parameters()
        if self.forget_proj is not None:
            self._spread_half_lives(self.forget_proj)

    @torch.no_grad()
    def _spread_half_lives(self, projection: nn.Linear) -> None:
        shortest, longest = (math.log(items) for items in HALF_LIVES)
        half_lives = torch.linspace(
            shortest, longest, self.num_heads, dtype=torch.float64, device=projection.weight.device
        ).exp()
        projection.weight.mul_(FORGET_SCALE)
        projection.bias.copy_((-math.log(2) / half_lives).exp().logit())

    def _gate_projections(self) -> list[nn.Linear]:
        return [part for part in (self.forget_proj, self.gate_proj) if part is not None]

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.gates == "none" else f", gates={self.gates!r}")

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
        check_decay(log_decay, (*x.shape[:2], self.num_heads), mask)
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
            log_decay=self.total_decay(x, log_decay),
            initial_state=state,
        )
        if state is None and offset is not None:
            final = shift_scores(final, offset)
        return self._finish_values(self._choose(outputs.flatten(-2), x)), final

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
        output, state = step(state, score, value, mask=mask, log_decay=self.total_decay(x, log_decay))
        return self._finish_values(self._choose(output.to(value.dtype).flatten(-2), x)), state

    def total_decay(self, x: Tensor, log_decay: Tensor | None = None) -> Tensor | None:
        """Return the logarithmic decay before each item of x, one per head: the forget gate's and any other.

        Its sum over the items of a later piece is what `aaren.ops.combine` needs to merge two pieces.
        """
        if self.forget_proj is None:
            return log_decay
        if is_plain(self.forget_proj):
            logits = project_scores(x, self.forget_proj.weight) + self.forget_proj.bias
        else:
            with full_precision(x.device.type):
                logits = self.forget_proj(x.to(self.query.dtype))
                logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        rates = log_sigmoid(logits)
        return rates if log_decay is None else rates + log_decay

    def _choose(self, averages: Tensor, x: Tensor) -> Tensor:
        return averages if self.gate_proj is None else open_gates(averages, self.gate_proj(x))

    def fold(self) -> Mixer[ScanState]:
        """Return a new module for inference: W_q, W_k and query become a vector and a number per head."""
        require_plain(self, linear=("q_proj", "k_proj", "v_proj", "out_proj", "forget_proj", "gate_proj"))
        with torch.no_grad():
            weight, offset = self.folded_keys()
            folded = FoldedAttention(
                self.width,
                self.num_heads,
                gates=self.gates,
                bias=self.gates != "none" or offset is not None or self.v_proj.bias is not None,
                device=weight.device,
                dtype=weight.dtype,
            )
            plain = [self.v_proj, *self._gate_projections()]
            values, *gates = [(part.weight, part.bias) for part in plain]
            folded.load_parts([values, (weight, offset), *gates], self.out_proj)
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
        """Name what folding makes one, query, W_q and W_k, and the gates."""
        keys = hash_weights([self.query, *tensors_of(self.q_proj), *tensors_of(self.k_proj)])
        gates = [tensor for part in self._gate_projections() for tensor in tensors_of(part)]
        return f"{keys}{self.gates}{hash_weights(gates)}" if gates else keys

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

    One weight of c + h rows, and h and c more with gates, gives values, scores, forget and output gates: a
    step makes one matrix product for all.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        gates: str = "none",
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

        self.forgets, self.chooses = gates in ("forget", "both"), gates in ("output", "both")
        self.num_exponents = num_heads * (1 + self.forgets)
        # Rows: values, one score per head, one forget gate per head, output gates.
        self.sizes = [width, num_heads, *[num_heads] * self.forgets, *[width] * self.chooses]
        self.weight = frozen(sum(self.sizes), width)
        self.bias = frozen(sum(self.sizes)) if bias else None
        self.out_weight = frozen(width, width)
        self.out_bias = frozen(width)
        self.key_fingerprint = ""  # of the query and weights that were folded, which are gone

    @torch.no_grad()
    def load_parts(self, parts: Sequence[tuple[Tensor, Tensor | None]], out_proj: nn.Linear) -> None:
        """Copy in weights and biases of values, scores and gates, and the output projection."""
        self.weight.copy_(torch.cat([weight for weight, _ in parts]))
        self.out_weight.copy_(out_proj.weight)
        if self.bias is not None:
            for rows, (_, bias) in zip(torch.split(self.bias, self.sizes), parts, strict=True):
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
        check_decay(log_decay, (*x.shape[:2], self.num_heads), mask)
        if state is not None:
            check_scan_state(state, x.shape[0], self.num_heads, self.head_width)
        # Two products, not one: a joint one would leave the values strided, and the kernel would copy them.
        value_bias = None if self.bias is None else self.bias[: self.width]
        exponents = self._exponents(x)
        outputs, final = scan_attention(
            exponents[..., : self.num_heads],
            self._split(F.linear(x, self.weight[: self.width], value_bias)),
            mask=mask,
            log_decay=self._total_decay(exponents, log_decay),
            initial_state=state,
        )
        averages = outputs.flatten(-2)
        if self.chooses:
            assert self.bias is not None
            gates = F.linear(x, self.weight[-self.width :], self.bias[-self.width :])
            averages = open_gates(averages, gates)
        return F.linear(averages, self.out_weight, self.out_bias), final

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
        value = precise[:, : self.width].view(state.w.shape)
        exponents = precise[:, self.width : self.width + self.num_exponents]
        if item.dtype in (torch.bfloat16, torch.float16):  # too few digits for an exponent
            exponents = self._exponents(x)
        score, log_decay = exponents[:, : self.num_heads], self._total_decay(exponents, log_decay)
        output, state = step(state, score, value, mask=mask, log_decay=log_decay)
        average = output.to(item.dtype).flatten(1)
        if self.chooses:
            average = open_gates(average, item[:, -self.width :])
        return F.linear(average, self.out_weight, self.out_bias), state

    def _exponents(self, x: Tensor) -> Tensor:
        """Return scores and, with forget gates, their logits, (*, h) or (*, 2 h), in float32 at least."""
        rows = slice(self.width, self.width + self.num_exponents)
        exponents = project_scores(x, self.weight[rows])
        return exponents if self.bias is None else exponents + self.bias[rows]

    def _total_decay(self, exponents: Tensor, log_decay: Tensor | None) -> Tensor | None:
        if not self.forgets:
            return log_decay
        rates = log_sigmoid(exponents[..., self.num_heads :])
        return rates if log_decay is None else rates + log_decay

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


def log_sigmoid(logits: Tensor) -> Tensor:
    """Return log sigmoid(x), exact where the sigmoid is close to 1."""
    return -F.softplus(-logits)


def open_gates(averages: Tensor, logits: Tensor) -> Tensor:
    """Return the averages times 2 sigmoid(logits), which is 1 at 0."""
    return averages * (2.0 * torch.sigmoid(logits))


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
