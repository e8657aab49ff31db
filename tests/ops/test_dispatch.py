"""Every backend equals the definition: outputs, states and gradients, for every kind of input."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

from aaren.errors import ConfigError
from aaren.ops import ScanState, combine, read, scan_attention, update
from aaren.ops.dispatch import BACKENDS
from support.scan_cases import LENGTHS, ScanCase, assert_same, make_case, visible

# Triton has its own file: it needs a GPU or its interpreter.
FAST_BACKENDS = [name for name in BACKENDS if name not in ("naive", "triton")]
every_backend = pytest.mark.parametrize("backend", FAST_BACKENDS)
flags = st.booleans()


@every_backend
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    length=st.sampled_from(LENGTHS) | st.integers(0, 140),
    heads=st.integers(1, 3),
    width=st.sampled_from([1, 2, 5, 17]),
    kind=st.sampled_from(["normal", "jumps120", "jumps1e4", "constant"]),
    masked=flags,
    decaying=flags,
    carried=flags,
)
def test_backend_equals_the_definition(backend, seed, **options):
    case = make_case(seed, **options)
    assert_same(case.observe(backend), case.observe("naive"), tolerance=1e-9)


@every_backend
def test_backend_equals_the_definition_at_length_1000(backend):
    case = make_case(0, batch=1, length=1000, heads=2, width=3, masked=True, decaying=True, carried=True)
    assert_same(case.observe(backend), case.observe("naive"), tolerance=1e-9)


@every_backend
@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6), masked=flags, decaying=flags)
def test_any_mix_of_steps_and_chunks_equals_the_whole(backend, data, seed, masked, decaying):
    case = make_case(seed, length=70, masked=masked, decaying=decaying)
    whole, final = scan_attention(case.scores, case.values, backend=backend, **case.options)
    cuts = sorted(data.draw(st.sets(st.integers(1, 69), max_size=5)))
    state = ScanState.empty((2, 3), 5)
    pieces = []
    for start, stop in zip([0, *cuts], [*cuts, 70], strict=True):
        options = {name: part[:, start:stop] for name, part in case.options.items()}
        if stop - start < 4:
            for k in range(stop - start):
                state = update(
                    state,
                    case.scores[:, start + k],
                    case.values[:, start + k],
                    mask=options["mask"][:, k : k + 1] if masked else None,
                    log_decay=options["log_decay"][:, k] if decaying else None,
                )
                pieces.append(read(state).unsqueeze(1))
        else:
            out, state = scan_attention(
                case.scores[:, start:stop],
                case.values[:, start:stop],
                initial_state=state,
                backend=backend,
                **options,
            )
            pieces.append(out)
    assert_same([torch.cat(pieces, dim=1), *visible(state)], [whole, *visible(final)], tolerance=1e-11)


@every_backend
def test_states_of_separate_shards_merge_into_the_state_of_all(backend):
    case = make_case(3, length=90, masked=True)
    _, whole = scan_attention(case.scores, case.values, backend=backend, **case.options)
    merged = ScanState.empty((2, 3), 5)
    for shard in torch.randperm(90, generator=torch.Generator().manual_seed(0)).split(20):
        _, state = scan_attention(
            case.scores[:, shard], case.values[:, shard], mask=case.options["mask"][:, shard], backend=backend
        )
        merged = combine(merged, state)
    assert_same(list(visible(merged)), list(visible(whole)), tolerance=1e-12)


@every_backend
def test_truncated_backpropagation_through_time_is_exact_when_not_truncated(backend):
    case = make_case(5, length=40, decaying=True)
    log_decay = case.options["log_decay"]
    whole, _ = scan_attention(case.scores, case.values, log_decay=log_decay, backend=backend)
    first, state = scan_attention(
        case.scores[:, :25], case.values[:, :25], log_decay=log_decay[:, :25], backend=backend
    )
    second, _ = scan_attention(
        case.scores[:, 25:],
        case.values[:, 25:],
        log_decay=log_decay[:, 25:],
        initial_state=state,
        backend=backend,
    )
    weights = torch.randn(whole.shape, dtype=whole.dtype, generator=torch.Generator().manual_seed(1))
    want = torch.autograd.grad((whole * weights).sum(), case.leaves())
    got = torch.autograd.grad((torch.cat([first, second], 1) * weights).sum(), case.leaves())
    assert_same(list(got), list(want), tolerance=1e-11)


@every_backend
@pytest.mark.parametrize("where", ["score", "value"])
def test_nan_poisons_only_its_own_stream_from_its_position_on(backend, where):
    case = make_case(11, batch=2, length=70, heads=2, width=3)
    scores, values = case.scores.detach().clone(), case.values.detach().clone()
    clean, _ = scan_attention(scores, values, backend=backend)
    if where == "score":
        scores[0, 30, 1] = torch.nan
    else:
        values[0, 30, 1, 0] = torch.nan
    outputs, _ = scan_attention(scores, values, backend=backend)
    assert outputs[0, 30:, 1, 0].isnan().all()
    outputs[0, 30:, 1] = clean[0, 30:, 1]
    torch.testing.assert_close(outputs, clean, rtol=1e-12, atol=1e-12)


@every_backend
def test_a_score_of_plus_infinity_is_a_nan(backend):
    scores = torch.tensor([0.0, torch.inf, 1.0, torch.inf]).view(1, 4, 1)
    outputs, _ = scan_attention(scores, torch.ones(1, 4, 1, 2), backend=backend)
    assert outputs.isnan().all(-1).flatten().tolist() == [False, True, True, True]


@every_backend
def test_padding_may_hold_anything(backend):
    case = make_case(13, length=20, masked=True)
    mask = case.options["mask"]
    dirty = ScanCase(
        torch.where(mask.unsqueeze(-1), case.scores.detach(), torch.nan).requires_grad_(),
        torch.where(mask[..., None, None], case.values.detach(), torch.inf).requires_grad_(),
        case.options,
    )
    assert_same(dirty.observe(backend), case.observe(backend), tolerance=1e-12)


@every_backend
def test_a_reset_forgets_even_a_nan(backend):
    case = make_case(17, length=80, heads=1)
    values = case.values.detach().clone()
    values[:, 10] = torch.nan
    log_decay = torch.zeros_like(case.scores)
    log_decay[:, 30] = -torch.inf
    outputs, state = scan_attention(case.scores, values, log_decay=log_decay, backend=backend)
    assert outputs[:, 10:30].isnan().all()
    assert outputs[:, 30:].isfinite().all()
    assert state.w.isfinite().all()


@every_backend
def test_a_huge_finite_decay_forgets_as_a_reset_does(backend):
    case = make_case(18, length=80)
    resets = torch.zeros_like(case.scores)
    resets[:, 20::17] = -torch.inf
    lowest = resets.clamp(min=torch.finfo(torch.float32).min)
    want, _ = scan_attention(case.scores, case.values, log_decay=resets, backend="naive")
    got, _ = scan_attention(case.scores, case.values, log_decay=lowest, backend=backend)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@every_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_outputs_have_the_inputs_dtype_and_sums_do_not(backend, dtype):
    case = make_case(19, length=65, dtype=dtype)
    outputs, state = scan_attention(case.scores, case.values, backend=backend)
    assert outputs.dtype == dtype
    assert state.w.dtype == torch.float64
    exact, _ = scan_attention(case.scores.double(), case.values.double(), backend="naive")
    unit = torch.finfo(dtype).eps  # only the rounding of the output itself remains
    rounding = 5e-7 if backend == "chunked" else 1e-7  # which also rounds its products within a block
    torch.testing.assert_close(outputs.double(), exact, rtol=unit, atol=rounding)
    outputs.sum().backward()
    assert case.values.grad.dtype == dtype


@every_backend
def test_final_state_keeps_the_dtype_of_the_initial_one(backend):
    case = make_case(23, length=10)
    initial = ScanState.empty((2, 3), 5, dtype=torch.float32)
    _, state = scan_attention(case.scores, case.values, initial_state=initial, backend=backend)
    assert state.m.dtype == state.u.dtype == state.w.dtype == torch.float32


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("backend", [name for name in FAST_BACKENDS if name != "recurrent"])
def test_float32_is_exact_to_1e_6_after_100_000_items(backend, offset):
    generator = torch.Generator().manual_seed(29)
    scores = (torch.randn(1, 100_000, 1, generator=generator) * 3 + offset).requires_grad_()
    values = torch.randn(1, 100_000, 1, 2, generator=generator).requires_grad_()
    weights = torch.randn(1, 100_000, 1, 2, generator=generator)
    results = []
    for dtype, name in ((torch.float64, "chunked"), (torch.float32, backend)):
        outputs, _ = scan_attention(scores.to(dtype), values.to(dtype), backend=name)
        results.append((outputs, *torch.autograd.grad((outputs * weights).sum(), (scores, values))))
    # Relative to the largest value, which bounds the outputs, and to the largest gradient: up to 31 here, of
    # which float32 itself leaves 2e-6 undecided.
    largest = [values.abs().max().item(), *(want.abs().max().item() for want in results[0][1:])]
    for got, want, scale in zip(results[1], results[0], largest, strict=True):
        assert (got.double() - want.double()).abs().max().item() < 1e-6 * scale


@pytest.mark.long
def test_recurrent_float32_is_exact_to_1e_6_after_100_000_items():
    generator = torch.Generator().manual_seed(31)
    scores = torch.randn(1, 100_000, 1, generator=generator) * 3 + 1e4
    values = torch.randn(1, 100_000, 1, 2, generator=generator)
    with torch.no_grad():
        got, _ = scan_attention(scores, values, backend="recurrent")
        want, _ = scan_attention(scores.double(), values.double(), backend="chunked")
    assert (got.double() - want).abs().max().item() < 1e-6 * values.abs().max().item()


def test_auto_is_fused_on_a_cpu():
    case = make_case(37)
    assert torch.equal(*(scan_attention(case.scores, case.values, backend=b)[0] for b in ("auto", "fused")))


def test_the_environment_chooses_what_auto_is_wherever_that_can_run(monkeypatch):
    case = make_case(37, dtype=torch.float32)
    run = {b: scan_attention(case.scores, case.values, backend=b)[0] for b in ("chunked", "fused")}
    assert not torch.equal(run["chunked"], run["fused"])  # which round differently
    for wanted, expected in [("chunked", "chunked"), ("fused", "fused"), ("triton", "fused"), ("", "fused")]:
        monkeypatch.setenv("AAREN_BACKEND", wanted)
        assert torch.equal(scan_attention(case.scores, case.values)[0], run[expected])
        assert torch.equal(scan_attention(case.scores, case.values, backend="fused")[0], run["fused"])
    monkeypatch.setenv("AAREN_BACKEND", "fussed")
    with pytest.raises(ConfigError, match="unknown backend in AAREN_BACKEND 'fussed'; did you mean 'fused'"):
        scan_attention(case.scores, case.values)


def test_the_environments_choice_gives_way_to_function_transforms(monkeypatch):
    monkeypatch.setenv("AAREN_BACKEND", "fused")
    case = make_case(53, length=9)
    torch.func.grad(lambda s: scan_attention(s, case.values.detach())[0].sum())(case.scores.detach())


def test_unknown_backend_gets_a_suggestion():
    case = make_case(41)
    with pytest.raises(
        ConfigError, match=r"unknown backend 'fussed'; did you mean 'fused'\? Known: auto, chunked"
    ):
        scan_attention(case.scores, case.values, backend="fussed")
    with pytest.raises(ConfigError, match="unknown backend 'None'"):
        scan_attention(case.scores, case.values, backend=None)


@every_backend
@pytest.mark.parametrize("sizes", [{"batch": 0}, {"width": 0}, {"heads": 0}], ids=str)
@pytest.mark.parametrize("decaying", [False, True])
def test_nothing_in_gives_nothing_out(backend, sizes, decaying):
    case = make_case(43, length=70, decaying=decaying, **sizes)
    outputs, state = scan_attention(case.scores, case.values, backend=backend, **case.options)
    assert outputs.shape == case.values.shape
    assert state.w.shape == (*case.values[:, 0].shape,)
    outputs.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, for forward mode
def test_forward_mode_tangents_are_those_of_the_definition():
    case = make_case(47, length=9)
    scores, values = case.scores.detach(), case.values.detach()
    tangents = torch.randn_like(scores), torch.randn_like(values)
    found = [
        torch.func.jvp(lambda s, v, b=backend: scan_attention(s, v, backend=b)[0], (scores, values), tangents)
        for backend in ("auto", "naive")
    ]
    assert_same(list(found[0]), list(found[1]), tolerance=1e-12)
    with forward_ad.dual_level():
        outputs, _ = scan_attention(forward_ad.make_dual(scores, tangents[0]), values)
        assert forward_ad.unpack_dual(outputs).tangent.any()


def test_function_transforms_give_per_sample_gradients():
    case = make_case(53, length=9, masked=True, decaying=True)
    scores, values, log_decay = (leaf.detach() for leaf in case.leaves())

    def loss(*items: torch.Tensor) -> torch.Tensor:
        s, v, real, rate = (item.unsqueeze(0) for item in items)
        return scan_attention(s, v, mask=real, log_decay=rate)[0].pow(2).sum()

    found = torch.func.vmap(torch.func.grad(loss))(scores, values, case.options["mask"], log_decay)
    outputs, _ = scan_attention(case.scores, case.values, **case.options)
    want = torch.autograd.grad(outputs.pow(2).sum(), case.scores)
    assert_same([found], list(want), tolerance=1e-12)


@pytest.mark.parametrize("backend", ["fused", "triton"])
def test_compiled_backends_refuse_function_transforms(backend):
    case = make_case(59, length=3)
    with pytest.raises(ConfigError, match=f"backend='{backend}' .*torch.func.*Use backend='auto'"):
        torch.func.grad(lambda s: scan_attention(s, case.values.detach(), backend=backend)[0].sum())(
            case.scores.detach()
        )


@every_backend
@pytest.mark.parametrize("m", [0.0, 1e6])
def test_a_start_of_zeros_is_a_start(backend, m):
    scores = torch.tensor([-2000.0, -2001.0, -1500.0]).double().view(1, 3, 1)
    values = torch.tensor([1.0, 3.0, 8.0]).double().view(1, 3, 1, 1)
    start = ScanState(
        torch.full((1, 1), m).double(), *(torch.zeros(size).double() for size in ((1, 1), (1, 1, 1)))
    )
    for options in ({}, {"log_decay": torch.full_like(scores, -0.5)}):
        expected, _ = scan_attention(scores, values, backend="naive", **options)
        outputs, final = scan_attention(scores, values, backend=backend, initial_state=start, **options)
        torch.testing.assert_close(outputs, expected)
        torch.testing.assert_close(read(final), expected[:, -1])


@every_backend
@pytest.mark.parametrize("place", [1, 10])
@pytest.mark.parametrize("bad", [(torch.inf,), (-torch.inf,), (torch.nan,), (torch.inf, -torch.inf)])
def test_infinite_values_are_read_as_such_until_a_reset(backend, place, bad):
    case = make_case(3, length=100, batch=1, width=2, decaying=True)
    with torch.no_grad():
        case.values[0, place, 0, 0], case.values[0, place + 3, 0, 0] = bad[0], bad[-1]
        case.options["log_decay"][0, 80] = -torch.inf
    (expected, _), (found, _) = (
        scan_attention(case.scores, case.values, backend=name, **case.options) for name in ("naive", backend)
    )
    torch.testing.assert_close(found, expected, equal_nan=True)
    # Of what is finite, gradients are the definition's, that of the bad value included.
    expected, found = (
        torch.autograd.grad(outputs[..., 1].sum() + outputs[:, 80:].sum(), case.values)[0]
        for outputs in (expected, found)
    )
    torch.testing.assert_close(found, expected, equal_nan=True)


@every_backend
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize(("place", "reset"), [(1, 3), (10, 70), (70, 75), (5, 130)])
def test_gradients_after_a_reset_know_nothing_of_a_bad_score_before_it(backend, bad, place, reset):
    case = make_case(4, length=140, batch=1, heads=2, width=2, decaying=True)
    with torch.no_grad():
        case.scores[0, place, 0] = bad
        case.options["log_decay"][0, reset] = -torch.inf
    for first in (0, reset):
        expected, found = (
            torch.autograd.grad(
                scan_attention(case.scores, case.values, backend=name, **case.options)[0][:, first:].sum(),
                [case.scores, case.values],
            )
            for name in ("naive", backend)
        )
        for a, b in zip(found, expected, strict=True):
            assert a[:, reset:].isfinite().all()
            torch.testing.assert_close(a[:, reset:], b[:, reset:])
            torch.testing.assert_close(a[:, :, 1], b[:, :, 1])
