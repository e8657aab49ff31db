import torch

from aaren.ops import scan_attention
from support.scan_cases import make_case


def test_the_definition_is_masked_softmax():
    """Even the truth is checked once against an independent form: the N x N softmax."""
    case = make_case(2, batch=2, length=20)
    logits = case.scores.transpose(1, 2).unsqueeze(2).expand(-1, -1, 20, -1)  # (b, h, k, i)
    logits = logits.masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf)
    want = torch.einsum("bhki,bihd->bkhd", logits.softmax(-1), case.values)
    got, state = scan_attention(case.scores, case.values, backend="naive")
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state.m + state.u.log(), case.scores.logsumexp(1), rtol=1e-12, atol=1e-12)


def test_decay_weighs_by_age():
    scores, values = torch.zeros(1, 3, 1), torch.tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1)
    log_decay = torch.full((1, 3, 1), 0.5).log()
    outputs, _ = scan_attention(scores, values, log_decay=log_decay, backend="naive")
    want = torch.tensor([1.0, (0.5 * 1 + 10) / 1.5, (0.25 * 1 + 0.5 * 10 + 100) / 1.75])
    torch.testing.assert_close(outputs.flatten(), want)
