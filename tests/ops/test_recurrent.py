import torch

from aaren.ops import ScanState, scan_attention
from aaren.ops.scans import step
from support.scan_cases import make_case


def test_state_does_not_grow():
    state = ScanState.empty((2, 3), 4)
    sizes = set()
    for k in range(200):
        _, state = step(state, torch.full((2, 3), float(k)), torch.ones(2, 3, 4))
        sizes.add(state.nbytes)
    assert len(sizes) == 1


def test_a_masked_stream_repeats_its_output_and_keeps_its_state():
    case = make_case(1, batch=2, length=6)
    _, before = scan_attention(case.scores[:, :5], case.values[:, :5])
    output, after = step(before, case.scores[:, 5], case.values[:, 5], mask=torch.tensor([[True], [False]]))
    want, _ = scan_attention(case.scores, case.values)
    torch.testing.assert_close(output[0], want[0, 5])
    torch.testing.assert_close(output[1], want[1, 4])
    assert all(torch.equal(new[1], old[1]) for new, old in zip(after, before, strict=True))


def test_step_returns_the_dtype_of_the_value():
    state = ScanState.empty((1, 1), 2)
    output, state = step(state, torch.zeros(1, 1), torch.ones(1, 1, 2, dtype=torch.bfloat16))
    assert output.dtype == torch.bfloat16
    assert state.w.dtype == torch.float64
