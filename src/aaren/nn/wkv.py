"""WKV: RWKV-4's time mixing on Aaren's scan: a head per channel, decay, a bonus for the current item.

    p_k = wkv of all items up to k, each weighed e^{key}, and e^{-rate} less for every item that came after it
    y_k = W_o (sigmoid(r_k) * mean of p_{k-1} and v_k, where v_k weighs e^{key_k + bonus})

p is a scan with log_decay = -rate. The mean joins a state, as a super-token, with the current item: all that
it needs beside the scan's outputs is the weight of the super-token, the sum of its items' weights.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import StateError
from aaren.nn.checks import check_scan_state, wrong_kind
from aaren.nn.dropout import drop
from aaren.nn.mixer import PlainMixer
from aaren.ops import ScanState, update
from aaren.ops.dispatch import scan_with_logs
from aaren.ops.state import as_token
from aaren.shapes import Activations, Mask, Token, TokenMask


class WKVState(NamedTuple):
    """What RWKV-4's time mixing remembers: a decaying sum per channel, and the item before."""

    sums: ScanState  # over streams (b, c), values of width 1
    last: Tensor  # (b, c) the latest input


class WKV(PlainMixer[WKVState]):
    """RWKV-4's time mixing: every channel is a head of width 1 with its own decay.

    Keys, values and gates each use their own blend of the current item and the one before (token shift).
    Parameters start as RWKV-4's do in the middle of its stack: slow channels first, fast ones last.

    Args:
        width: c.
        dropout: on the gated result, before W_o, while training.
        device: where the parameters are made.
        dtype: what they are made of.
    """

    name = "wkv"
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
        # One row each for keys, values and gates: the current item's share in the blend.
        self.blend = nn.Parameter(torch.empty(3, width, device=device, dtype=dtype))
        self.log_rate = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.bonus = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.k_proj = nn.Linear(width, width, bias=False, device=device, dtype=dtype)
        self.v_proj = nn.Linear(width, width, bias=False, device=device, dtype=dtype)
        self.gate_proj = nn.Linear(width, width, bias=False, device=device, dtype=dtype)
        self.out_proj = nn.Linear(width, width, bias=False, device=device, dtype=dtype)
        self._reset_own_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters again, as the constructor does."""
        self._reset_own_parameters()
        for projection in (self.k_proj, self.v_proj, self.gate_proj, self.out_proj):
            projection.reset_parameters()

    @torch.no_grad()
    def _reset_own_parameters(self) -> None:
        position = torch.linspace(0.0, 1.0, self.width)
        self.blend[:2] = position.sqrt()
        self.blend[2] = position.sqrt().sqrt()
        self.log_rate.copy_(-5.0 + 8.0 * position**1.35)
        # Neighbouring channels start with different bonuses, around weight 0.3.
        self.bonus.copy_(torch.tensor(0.3).log() + 0.5 * (torch.arange(self.width) % 3 - 1))

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> WKVState:
        """Return the state before the first item: sums float64 unless asked otherwise, no item before."""
        device = device or self.bonus.device
        sums = ScanState.empty((batch_size, self.width), 1, dtype=dtype, device=device)
        return WKVState(
            sums, torch.zeros(batch_size, self.width, dtype=dtype or self.bonus.dtype, device=device)
        )

    def _run_sequence(
        self, x: Activations, state: WKVState, mask: Mask | None
    ) -> tuple[Activations, WKVState]:
        before, last = _shift(x, state.last.to(x.dtype), mask)
        keys, values, gates = self._project(x, before)
        log_decay = (-self.log_rate.exp()).expand_as(keys)
        means, sums, logs = scan_with_logs(
            keys, values.unsqueeze(-1), mask=mask, log_decay=log_decay, initial_state=state.sums
        )
        log_weight, mean = as_token(state.sums)
        means = torch.cat([mean.to(means.dtype).unsqueeze(1), means], dim=1).squeeze(-1)
        logs = torch.cat([log_weight.to(logs.dtype).unsqueeze(1), logs], dim=1)
        share = torch.sigmoid(keys + self.bonus - logs[:, :-1]).to(values.dtype)
        mixed = torch.lerp(means[:, :-1], values, share)
        if mask is not None:
            mixed = torch.where(mask.unsqueeze(-1), mixed, means[:, 1:])
        return self._finish(mixed, gates), WKVState(sums, last.to(state.last.dtype))

    def _run_item(self, x: Token, state: WKVState, mask: TokenMask | None) -> tuple[Token, WKVState]:
        is_real = None if mask is None else mask.unsqueeze(-1)
        keys, values, gates = self._project(x, state.last.to(x.dtype))
        log_weight, mean = as_token(state.sums)
        mean = mean.squeeze(-1).to(values.dtype)
        share = torch.sigmoid(keys + self.bonus - log_weight).to(values.dtype)
        mixed = torch.lerp(mean, values, share)
        decay = (-self.log_rate.exp()).expand_as(keys)
        last = x.to(state.last.dtype)
        if is_real is not None:
            mixed = torch.where(is_real, mixed, mean)
            last = torch.where(is_real, last, state.last)
        sums = update(state.sums, keys, values.unsqueeze(-1), mask=is_real, log_decay=decay)
        return self._finish(mixed, gates), WKVState(sums, last)

    def _project(self, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        for_keys, for_values, for_gates = (torch.lerp(before, x, share.to(x.dtype)) for share in self.blend)
        keys = self.k_proj(for_keys)
        # Keys are exponents: float32 at least, under autocast too.
        keys = keys.to(torch.promote_types(keys.dtype, torch.float32))
        return keys, self.v_proj(for_values), torch.sigmoid(self.gate_proj(for_gates))

    def _finish(self, mixed: Tensor, gates: Tensor) -> Tensor:
        gated = gates * mixed
        if self.training:
            gated = drop(gated, self.dropout)
        projected: Tensor = self.out_proj(gated)
        return projected

    def _check_state(self, state: WKVState, batch_size: int) -> None:
        if not isinstance(state, WKVState):
            raise wrong_kind(WKVState, state)
        check_scan_state(state.sums, batch_size, self.width, 1)
        if state.last.shape != (batch_size, self.width):
            raise StateError(
                f"this layer needs a state whose latest input is {(batch_size, self.width)}; got "
                f"{tuple(state.last.shape)}. Start again with init_state({batch_size})."
            )


def _shift(x: Activations, last: Token, mask: Mask | None) -> tuple[Activations, Token]:
    """Return for every item the real one before it, and the latest real one at the end."""
    with_last = torch.cat([last.unsqueeze(1), x], dim=1)
    if mask is None:
        return with_last[:, :-1], with_last[:, -1]
    position = torch.arange(1, x.shape[1] + 1, device=x.device).expand_as(mask)
    latest = (
        F.pad(torch.where(mask, position, 0), (1, 0)).cummax(dim=1).values
    )  # (b, t + 1); 0 is the carried one
    found = with_last.gather(1, latest.unsqueeze(-1).expand_as(with_last))
    return found[:, :-1], found[:, -1]
