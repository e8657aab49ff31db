from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aaren.classification.model import Classifier, ClassifierConfig, ClassifierState
from aaren.classification.session import to_probabilities
from aaren.errors import ConfigError, DataError, ShapeError, StateError
from aaren.nn.blocks import state_to_bytes
from aaren.nn.embedding import position_encoding
from aaren.stream.saved import load_model, save_model

LENGTH, CHANNELS, CLASSES, BATCH = 11, 3, 4, 3
SMALL: dict[str, Any] = {
    "num_channels": CHANNELS,
    "num_classes": CLASSES,
    "length": LENGTH,
    "width": 16,
    "num_heads": 4,
    "ff_width": 32,
    "num_layers": 2,
}
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def small(**options: Any) -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Classifier(ClassifierConfig(**{**SMALL, **options})).double().eval()


@pytest.fixture(params=["flattened", "pooled"])
def head(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["aaren", "softmax", "gru"])
def causal(request: pytest.FixtureRequest, head: str) -> Classifier:
    return small(mixer=request.param, embedding="causal", head=head)


@pytest.fixture
def values(rng: torch.Generator) -> Tensor:
    return torch.randn(BATCH, LENGTH, CHANNELS, generator=rng, dtype=torch.float64)


def fold(model: Classifier, values: Tensor, state: ClassifierState) -> tuple[Tensor, ClassifierState]:
    scores = []
    for row in values.unbind(1):
        found, state = model.step(row, state)
        scores.append(found)
    return torch.stack(scores, dim=1), state


@pytest.mark.parametrize(
    ("channels", "length", "classes", "expected"),
    [
        (3, 1751, 4, 1_295_876),
        (144, 62, 2, 469_378),
        (3, 152, 26, 905_242),
        (61, 405, 2, 525_314),
        (12, 29, 9, 436_233),
        (963, 144, 7, 897_031),
        (6, 896, 2, 629_890),
        (7, 1152, 2, 695_810),
        (13, 93, 10, 522_250),
        (3, 315, 8, 721_928),
    ],
    ids=["Ethanol", "Face", "Handwriting", "Heartbeat", "Vowels", "PEMS", "SCP1", "SCP2", "Digits", "UWave"],
)
def test_parameter_totals_are_the_published_ones(
    channels: int, length: int, classes: int, expected: int
) -> None:
    for mixer, total in (("softmax", expected), ("aaren", expected + 384)):
        with torch.device("meta"):
            model = Classifier(
                ClassifierConfig(num_channels=channels, num_classes=classes, length=length, mixer=mixer)
            )
        assert sum(parameter.numel() for parameter in model.parameters()) == total


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
@pytest.mark.parametrize("embedding", ["circular", "causal"])
def test_every_weight_learns_but_the_one_for_dates(
    mixer: str, embedding: str, head: str, values: Tensor
) -> None:
    model = small(mixer=mixer, embedding=embedding, head=head)
    model(values).square().sum().backward()
    silent = {
        name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()
    }
    unused = {"mark.weight"} if embedding == "circular" else set()
    assert {name for name in silent if "k_proj.bias" not in name} == unused


def test_the_protocol_model_written_out(values: Tensor) -> None:
    model = small()
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [7], [2]])
    padded = values * mask.unsqueeze(-1)
    kernel = model.value.weight.view(16, 3, CHANNELS).permute(0, 2, 1)
    wrapped = torch.nn.functional.pad(padded.transpose(1, 2), (1, 1), mode="circular")
    embedded = torch.nn.functional.conv1d(wrapped, kernel).transpose(1, 2)
    encoded, _ = model.encoder(embedded + position_encoding(LENGTH, 16))
    outputs = torch.nn.functional.gelu(encoded) * mask.unsqueeze(-1)
    expected = outputs.flatten(1) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(values, mask=mask), expected, **EXACT)


@pytest.mark.parametrize("embedding", ["circular", "causal"])
def test_a_short_series_is_as_good_as_a_padded_one(embedding: str, head: str, values: Tensor) -> None:
    model = small(embedding=embedding, head=head)
    mask = (torch.arange(LENGTH) < 7).expand(BATCH, -1)
    padded = values.masked_fill(~mask.unsqueeze(-1), torch.nan)  # padding may hold anything
    torch.testing.assert_close(model(values[:, :7]), model(padded, mask=mask), **EXACT)


def test_circular_steps_see_the_end_and_causal_ones_do_not(values: Tensor) -> None:
    changed = values.clone()
    changed[:, -1] += 1.0
    for embedding, sees in (("circular", True), ("causal", False)):
        model = small(embedding=embedding)
        first, again = (model.encoder(model.value(rows))[0][:, 0] for rows in (values, changed))
        assert torch.equal(first, again) != sees


def test_folding_step_equals_follow_and_ends_in_forward(causal: Classifier, values: Tensor) -> None:
    stepped, last = fold(causal, values, causal.init_state(BATCH))
    followed, final = causal.score_steps(values)
    torch.testing.assert_close(stepped, followed, **EXACT)
    torch.testing.assert_close(followed[:, -1], causal(values), **EXACT)
    torch.testing.assert_close(causal.read(final), causal.read(last), **EXACT)
    for steps in (1, 5):
        torch.testing.assert_close(followed[:, steps - 1], causal(values[:, :steps]), **EXACT)


@pytest.mark.parametrize("cut", [0, 1, 6])
def test_any_split_with_carried_state_equals_the_whole(causal: Classifier, values: Tensor, cut: int) -> None:
    whole, final = causal.score_steps(values)
    first, state = causal.score_steps(values[:, :cut])
    second, state = causal.score_steps(values[:, cut:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, **EXACT)
    torch.testing.assert_close(state.total, final.total, **EXACT)
    assert torch.equal(state.tail, final.tail)
    assert torch.equal(state.position, final.position)


def test_steps_that_are_masked_out_are_no_steps(causal: Classifier, values: Tensor) -> None:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    mask[0, [0, 3, 4, 10]] = False
    mask[1] = False
    holed = values.masked_fill(~mask.unsqueeze(-1), torch.nan)
    scores, final = causal.score_steps(holed, mask=mask)
    state, stepped = causal.init_state(BATCH), []
    for row, real in zip(holed.unbind(1), mask.unbind(1), strict=True):
        found, state = causal.step(row, state, mask=real)
        stepped.append(found)
    torch.testing.assert_close(torch.stack(stepped, dim=1), scores, **EXACT)
    torch.testing.assert_close(scores[0, -1], causal(values[:1, mask[0]])[0], **EXACT)
    torch.testing.assert_close(scores[1], causal.head.bias.expand(LENGTH, -1), **EXACT)
    assert final.position.tolist() == state.position.tolist() == [7, 0, 11]
    # Streams that stand at different places go on together.
    more, _ = causal.score_steps(values[:2, :3], final.select([0, 1]))
    alone, _ = causal.score_steps(values[:1, :3], final.select([0]))
    padded, _ = causal.score_steps(values[:1], final.select([0]), mask=torch.arange(LENGTH).unsqueeze(0) < 3)
    torch.testing.assert_close(padded[:, :3], alone, **EXACT)
    torch.testing.assert_close(more[:1], alone, **EXACT)


def test_a_stream_without_a_step_keeps_its_state_bit_for_bit(causal: Classifier, values: Tensor) -> None:
    _, state = causal.score_steps(values)
    if causal.config.head == "flattened":
        _, state = causal.score_steps(values[:, :-1])
    mask = torch.tensor([True, False, True])
    row = values[:, 0].clone()
    row[1] = torch.nan
    before = causal.read(state)
    after, new = causal.step(row, state, mask=mask)
    assert state_to_bytes(new.select([1])) == state_to_bytes(state.select([1]))
    assert torch.equal(after[1], before[1])
    assert not torch.equal(after[0], before[0])


def test_a_full_stream_may_wait_beside_one_that_goes_on(values: Tensor) -> None:
    model = small(embedding="causal")
    _, full = model.score_steps(values[:1])
    _, begun = model.score_steps(values[1:2, :4])
    tail, position, total = (torch.cat([getattr(s, n) for s in (full, begun)]) for n in full._fields[1:])
    encoder = model.score_steps(values[:2])[1].encoder
    both = ClassifierState(encoder=encoder, tail=tail, position=position, total=total)
    scores, _ = model.step(values[:2, 0], both, mask=torch.tensor([False, True]))
    torch.testing.assert_close(scores[0], model(values[:1])[0], **EXACT)


def test_the_state_has_constant_size(head: str, values: Tensor) -> None:
    model = small(embedding="causal", head=head)
    _, early = model.score_steps(values[:, :2])
    _, late = model.score_steps(values)
    assert early.nbytes == late.nbytes
    assert len(state_to_bytes(early)) == len(state_to_bytes(late))


def test_the_pooled_head_takes_streams_of_any_length(rng: torch.Generator) -> None:
    model = small(embedding="causal", head="pooled")
    values = torch.randn(1, 5 * LENGTH, CHANNELS, generator=rng, dtype=torch.float64)
    scores, state = model.score_steps(values)
    torch.testing.assert_close(scores[:, -1], model(values), **EXACT)
    assert state.nbytes == model.init_state(1).nbytes
    assert small(head="pooled")(values).shape == (1, CLASSES)  # circular too, though not as a stream


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
def test_a_session_ends_in_the_answer_of_the_batch(mixer: str, head: str, values: Tensor) -> None:
    model = small(mixer=mixer, embedding="causal", head=head)
    expected = model(values).softmax(-1)
    session = model.stream()
    for row in values[0].tolist():  # plain lists will do
        answer = session.push(row)
    torch.testing.assert_close(answer, expected[0], **EXACT)
    side_by_side = model.stream(batch_size=BATCH)
    for row in values.unbind(1):
        answers = side_by_side.push(row)
    torch.testing.assert_close(answers, expected, **EXACT)
    assert answers.sum(-1).tolist() == pytest.approx([1.0] * BATCH)


def test_a_float32_stream_is_exact_to_rounding(values: Tensor) -> None:
    model = small(embedding="causal").float()
    session = model.stream(batch_size=BATCH)
    for row in values.float().unbind(1):
        answers = session.push(row)
    torch.testing.assert_close(answers, model(values.float()).softmax(-1), rtol=1e-5, atol=1e-6)


def test_a_session_is_saved_and_goes_on(values: Tensor) -> None:
    model = small(embedding="causal")
    session = model.stream(batch_size=BATCH)
    for row in values[:, :5].unbind(1):
        session.push(row)
    other = model.stream(batch_size=BATCH)
    other.restore(session.to_bytes())
    assert torch.equal(other.push(values[:, 5]), session.push(values[:, 5]))
    stranger = Classifier(ClassifierConfig(**{**SMALL, "embedding": "causal"})).stream(batch_size=BATCH)
    with pytest.raises(StateError, match="saved by other weights"):
        stranger.restore(session.to_bytes())


@pytest.mark.parametrize("options", [{}, {"embedding": "causal"}, {"embedding": "causal", "head": "pooled"}])
def test_a_model_on_disk_says_the_same(options: dict[str, Any], tmp_path: Path, values: Tensor) -> None:
    model = small(**options)
    again = load_model(save_model(model, tmp_path / "model"))
    assert isinstance(again, Classifier)
    assert again.config == model.config
    assert torch.equal(again(values), model(values))


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
def test_a_folded_copy_says_the_same(mixer: str, values: Tensor) -> None:
    model = small(mixer=mixer)
    torch.testing.assert_close(model.fold()(values), model(values), **EXACT)


def test_dropout_acts_in_training_alone(values: Tensor) -> None:
    model = small()
    assert torch.equal(model(values), model(values))
    model.train()
    assert not torch.equal(model(values), model(values))


def test_the_circular_model_cannot_be_streamed_and_names_the_cure(values: Tensor) -> None:
    model = small()
    for attempt in (
        lambda: model.stream(),
        lambda: model.init_state(1),
        lambda: model.score_steps(values),
        lambda: model.step(values[:, 0], small(embedding="causal").init_state(BATCH)),
    ):
        with pytest.raises(ConfigError, match=r"cannot be streamed. Train one with embedding='causal'"):
            attempt()


def test_a_stream_longer_than_the_flattened_head_names_the_cure(values: Tensor) -> None:
    model = small(embedding="causal")
    session = model.stream()
    for row in values[0]:
        session.push(row)
    with pytest.raises(ShapeError, match=r"weights for 11 steps.*has 12.*session.reset.*head='pooled'"):
        session.push(values[0, 0])
    session.reset()
    session.push(values[0, 0])
    longer = torch.cat([values, values], dim=1)
    with pytest.raises(ShapeError, match=r"weights for 11 steps.*has 22"):
        model(longer)
    with pytest.raises(ShapeError, match=r"weights for 11 steps.*has 22"):
        model.score_steps(longer)


@pytest.mark.parametrize("mixer", ["aaren", "softmax"])
def test_no_series_gives_no_scores(mixer: str, head: str, values: Tensor) -> None:
    model = small(mixer=mixer, embedding="causal", head=head)
    nothing = values[:0]
    assert model(nothing).shape == (0, CLASSES)
    for mask in (None, torch.ones(0, LENGTH, dtype=torch.bool)):
        scores, state = model.score_steps(nothing, mask=mask)
        assert scores.shape == (0, LENGTH, CLASSES)
        assert state.position.shape == (0,)
    assert model.stream(0).push(nothing[:, 0]).shape == (0, CLASSES)


def test_every_stream_takes_one_step(causal: Classifier, values: Tensor) -> None:
    state = causal.init_state(2)
    for count in (1, 3):
        words = rf"state is of 2 streams; items for {count} came.*init_state\({count}\).*select"
        with pytest.raises(StateError, match=words):
            causal.step(values[:count, 0], state)
        with pytest.raises(StateError, match=words):
            causal.score_steps(values[:count], state)


def test_nan_in_a_stream_is_refused() -> None:
    with pytest.raises(DataError, match="item 0 of this session holds nan"):
        small(embedding="causal").stream().push([0.0, float("nan"), 1.0])


def test_what_does_not_fit_is_said(values: Tensor) -> None:
    model = small(embedding="causal")
    with pytest.raises(
        ShapeError, match=r"values must be \(b, t, 3\).*time before channels; got \(3, 3, 11\)"
    ):
        model(values.transpose(1, 2))
    with pytest.raises(ShapeError, match=r"values must be \(b, 3\)"):
        model.step(values, model.init_state(BATCH))
    with pytest.raises(ShapeError, match=r"mask must be bool, True = real item; got torch.float32"):
        model(values, mask=torch.ones(BATCH, LENGTH))
    with pytest.raises(ShapeError, match="padding must stand at the end"):
        model(values, mask=torch.arange(LENGTH).expand(BATCH, -1) > 2)
    with pytest.raises(StateError, match="needs a state of kind ClassifierState; got EncoderState"):
        model.step(values[:, 0], model.encoder.init_state(BATCH))  # type: ignore[arg-type]
    for wrong, words in (
        ({"num_classes": 1}, "num_classes must be at least 2; got 1"),
        ({"length": 0}, "length must be at least 1; got 0"),
        ({"embedding": "centred"}, "unknown embedding 'centred'"),
        ({"mixer": "aren"}, "did you mean 'aaren'"),
    ):
        with pytest.raises(ConfigError, match=words):
            ClassifierConfig(**{**SMALL, **wrong})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_probabilities_of_a_stream_do_not_depend_on_its_neighbours(dtype: torch.dtype) -> None:
    scores = (30.0 * torch.randn(257, 9, generator=torch.Generator().manual_seed(0))).to(dtype)
    found = to_probabilities(scores)
    assert found.dtype == dtype
    torch.testing.assert_close(found, scores.softmax(-1))
    for row in (0, 23, 256):
        assert torch.equal(to_probabilities(scores[row]), found[row])
