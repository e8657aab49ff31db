"""FoldedAttention: the Aaren layer for inference, with all that is constant after training computed once.

s = q'·(W_k x + b_k) = (W_k^T q')·x + q'·b_k: W_q, W_k and the query become one vector and one number per
head. The number cancels from an empty state but is kept, so that states pass freely between this module and
the original.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.nn.fingerprint import hash_weights
from aaren.nn.inputs import check_decay, check_scan_state, check_sequence, check_token
from aaren.nn.mixer import Mixer
from aaren.nn.scan_step import scan_step
from aaren.nn.scores import project_scores
from aaren.ops import ScanState, scan_attention
from aaren.shapes import Activations, LogDecay, Mask, SequenceBounds, Token, TokenMask, Values


class FoldedAttention(Mixer[ScanState]):
    """What `AarenAttention.fold` returns: the same verbs and states, about half the parameters, no gradients.

    One weight of c + h rows gives values and scores together: a step makes one matrix product for both.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        bias: bool = True,
        out_bias: bool = True,
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
        self.out_bias = frozen(width) if out_bias else None
        self.key_fingerprint = ""  # of the query and weights that were folded, which are gone

    @torch.no_grad()
    def load_parts(
        self, v_proj: nn.Linear, weight: Tensor, offset: Tensor | None, out_proj: nn.Linear
    ) -> None:
        """Copy in the values' projection, the folded keys (h, c) and offsets (h,), the output projection."""
        self.weight.copy_(torch.cat([v_proj.weight, weight]))
        self.out_weight.copy_(out_proj.weight)
        if self.bias is not None and offset is not None:
            self.bias.copy_(torch.cat([v_proj.bias, offset]))
        if self.out_bias is not None:
            self.out_bias.copy_(out_proj.bias)

    def extra_repr(self) -> str:
        """Describe the layer."""
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
        cu_seqlens: SequenceBounds | None = None,
    ) -> tuple[Activations, ScanState]:
        """Attend to every prefix at once, as `AarenAttention.forward` does."""
        check_sequence(x, self.width, mask, cu_seqlens)
        check_decay(log_decay, (*x.shape[:2], self.num_heads))
        if state is not None:
            num_streams = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
            check_scan_state(state, num_streams, self.num_heads, self.head_width)
        if mask is not None and log_decay is not None:
            log_decay = log_decay.masked_fill(~mask.unsqueeze(-1), 0.0)
        # Two products, not one: a joint one would leave the values strided, and the kernel would copy them.
        value_bias, score_bias = (
            (None, 0.0) if self.bias is None else (self.bias[: self.width], self.bias[self.width :])
        )
        outputs, final = scan_attention(
            project_scores(x, self.weight[self.width :]) + score_bias,
            self._split(F.linear(x, self.weight[: self.width], value_bias)),
            mask=mask,
            log_decay=log_decay,
            cu_seqlens=cu_seqlens,
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
        check_token(x, self.width, mask)
        check_decay(log_decay, (x.shape[0], self.num_heads))
        check_scan_state(state, x.shape[0], self.num_heads, self.head_width)
        item = F.linear(x, self.weight, self.bias)
        precise = item.to(state.m.dtype)
        value, score = self._split(precise[:, : self.width]), precise[:, self.width :]
        if item.dtype in (torch.bfloat16, torch.float16):  # too few digits for an exponent
            score = project_scores(x, self.weight[self.width :])
            score = score if self.bias is None else score + self.bias[self.width :]
        output, state = scan_step(state, score, value, mask=mask, log_decay=log_decay)
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
