"""The definition: softmax over every prefix, one prefix after another, in float64.

Quadratic and obvious. Every other backend is tested against this file, outputs and gradients.
"""

import torch

from aaren.ops.state import Items, ScanState, as_token, read
from aaren.shapes import Scores, Values


def scan(items: Items, initial: ScanState) -> tuple[Values, ScanState, Scores | None]:
    """Attend to every prefix of (b, t, h, d) items that follow an initial state."""
    scores, values, mask, log_decay, wants_logs = items
    scores, values = scores.double(), values.double()
    if mask is not None:
        scores = torch.where(mask.unsqueeze(-1), scores, -torch.inf)
        values = torch.where(mask[..., None, None], values, 0.0)

    # An initial state is one token in front of all others.
    first_score, first_value = as_token(initial)
    scores = torch.cat([first_score.unsqueeze(1), scores], dim=1)
    values = torch.cat([first_value.unsqueeze(1), values], dim=1)

    outputs, logs = [], [scores[:, :0]]
    final = initial
    age = torch.zeros_like(first_score).unsqueeze(1)  # (b, k, h): each item's total decay so far
    for k in range(1, scores.shape[1]):
        if log_decay is not None:
            age = age + log_decay[:, k - 1 : k].double()
        age = torch.cat([age, torch.zeros_like(age[:, :1])], dim=1)
        # An item forgotten by a reset leaves nothing behind, not even a NaN.
        is_remembered = (age != -torch.inf) & (scores[:, : k + 1] != -torch.inf)
        logits = torch.where(is_remembered, scores[:, : k + 1] + age, -torch.inf)
        final = _attend_to_all(logits, values[:, : k + 1])
        outputs.append(read(final))
        logs.append(as_token(final)[0].unsqueeze(1))
    means = torch.stack(outputs, dim=1) if outputs else values[:, 1:]
    return means, final, torch.cat(logs, dim=1) if wants_logs else None


def _attend_to_all(logits: Scores, values: Values) -> ScanState:
    is_remembered = logits != -torch.inf
    m = logits.amax(dim=1).clamp(min=torch.finfo(logits.dtype).min).detach()
    weights = torch.where(is_remembered, torch.exp(logits - m.unsqueeze(1)), 0.0)
    terms = torch.where(is_remembered.unsqueeze(-1), weights.unsqueeze(-1) * values, 0.0)
    return ScanState(m, weights.sum(dim=1), terms.sum(dim=1))
