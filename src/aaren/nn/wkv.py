"""WKV: RWKV-4's time mixing on Aaren's scan: a head per channel, decay, a bonus for the current item.

    p_k = wkv of all items up to k, each weighed e^{key}, and e^{-rate} less for every item that came after it
    y_k = W_o (sigmoid(r_k) * mean of p_{k-1} and v_k, where v_k weighs e^{key_k + bonus})

p is `scan_attention` with log_decay = -rate. The mean joins a state, as a super-token, with the current item;
all it needs beside the scan's outputs is how heavy the super-token is: log of the sum of its items' weights,

    L_k = logaddexp(L_{k-1} + log_decay_k, s_k)

by which `scan_attention` divides and which it does not return. Its derivative needs no new kernel: dL_k/ds_i
is the attention weight of item i at position k, so a scan whose values are (zero-valued) tangents of the
scores carries it.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import StateError
from aaren.nn.checks import check_scan_state, wrong_kind
from aaren.nn.dropout import drop
from aaren.nn.mixer import PlainMixer
from aaren.ops import ScanState, read, scan_attention, update
from aaren.shapes import Activations, LogDecay, Mask, Scores, Token, TokenMask

CHUNK = 64  # positions whose decays are summed up: short, so that sums stay small and exact
LIGHTEST = -1e30  # stands for log 0; logcumsumexp of the lowest number would overflow


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
        if mask is not None:
            log_decay = log_decay.masked_fill(~mask.unsqueeze(-1), 0.0)
        means, sums = scan_attention(
            keys, values.unsqueeze(-1), mask=mask, log_decay=log_decay, initial_state=state.sums
        )
        means = torch.cat([read(state.sums).to(means.dtype).unsqueeze(1), means], dim=1).squeeze(-1)
        weights = log_weights(keys, log_decay, mask, state.sums)
        share = torch.sigmoid(keys + self.bonus - weights[:, :-1]).to(values.dtype)
        mixed = torch.lerp(means[:, :-1], values, share)
        if mask is not None:
            mixed = torch.where(mask.unsqueeze(-1), mixed, means[:, 1:])
        return self._finish(mixed, gates), WKVState(sums, last.to(state.last.dtype))

    def _run_item(self, x: Token, state: WKVState, mask: TokenMask | None) -> tuple[Token, WKVState]:
        is_real = None if mask is None else mask.unsqueeze(-1)
        keys, values, gates = self._project(x, state.last.to(x.dtype))
        mean = read(state.sums).squeeze(-1).to(values.dtype)
        share = torch.sigmoid(keys + self.bonus - log_weight(state.sums)).to(values.dtype)
        mixed = torch.lerp(mean, values, share)
        decay = (-self.log_rate.exp()).expand_as(keys)
        last = x.to(state.last.dtype)
        if is_real is not None:
            mixed = torch.where(is_real, mixed, mean)
            decay = decay.masked_fill(~is_real, 0.0)
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


def log_weight(state: ScanState) -> Tensor:
    """Return log of a state's weight, (b, h): the score of its super-token."""
    is_empty = state.u == 0
    return torch.where(is_empty, LIGHTEST, state.m + torch.where(is_empty, 1.0, state.u).log())


def log_weights(scores: Scores, log_decay: LogDecay, mask: Mask | None, initial: ScanState) -> Tensor:
    """Return log of the weight before the first item and after each, (b, t + 1, h), in float64.

    Args:
        scores: (b, t, h).
        log_decay: (b, t, h), finite.
        mask: (b, t) bool.
        initial: the state before the first item.
    """
    scores, log_decay = scores.double(), log_decay.double()
    first = log_weight(initial).double()
    with torch.no_grad():
        values = _running(scores, log_decay, mask, first)
    decayed = log_decay.cumsum(1)
    tangents, _ = scan_attention(
        scores.detach(),
        _tangent(scores - decayed).unsqueeze(-1),
        mask=mask,
        log_decay=log_decay.detach(),
        initial_state=ScanState(
            initial.m.detach().double(),
            initial.u.detach().double(),
            (initial.u.detach().double() * _tangent(first)).unsqueeze(-1),
        ),
    )
    later = values + tangents.squeeze(-1) + _tangent(decayed)
    return torch.cat([first.unsqueeze(1), later], dim=1)


def _running(scores: Scores, log_decay: LogDecay, mask: Mask | None, first: Tensor) -> Tensor:
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(-1), LIGHTEST)
    found, carried = [], first
    for start in range(0, scores.shape[1], CHUNK):
        decayed = log_decay[:, start : start + CHUNK].cumsum(1)
        items = torch.cat([carried.unsqueeze(1), scores[:, start : start + CHUNK] - decayed], dim=1)
        found.append(items.logcumsumexp(dim=1)[:, 1:] + decayed)
        carried = found[-1][:, -1]
    return torch.cat(found, dim=1) if found else scores


def _tangent(x: Tensor) -> Tensor:
    """Return 0 with the derivative of x."""
    return x - x.detach()


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
