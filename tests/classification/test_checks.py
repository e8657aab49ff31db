import pytest
import torch

from aaren.classification.data import require_learnable, require_steps, require_trainable
from aaren.classification.ts import Cases, parse_ts
from aaren.errors import DataError

HEADER = "@problemName X\n@timeStamps false\n@classLabel true a b c\n@data\n"
GOOD = "1,2:a\n3,4:a\n5,6:a\n1,3:b\n"


def cases(lines: str) -> Cases:
    return parse_ts((HEADER + lines).encode(), name="text")


def check(*parts: str, held_out: float = 0.2) -> None:
    named = {f"X_{part}.ts": cases(lines) for part, lines in zip(("TRAIN", "TEST"), parts, strict=False)}
    require_trainable(named, irregular="strict", held_out=held_out)


def test_parts_that_can_be_learned_from() -> None:
    check(GOOD)
    check("1,2:a\n3,4:a\n1,3:b\n", "1,2:a\n")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((GOOD, "1,2:c\n"), r"X_TEST\.ts: 1 case\(s\) have labels unseen in TRAIN: c; TRAIN has a, b"),
        ((GOOD, "1,2:a\n1:b\n"), r"X_TEST\.ts: case 1 has 1 time step\(s\); a series has at least 2"),
        ((GOOD, "1,inf:a\n"), r"X_TEST\.ts: case 0, channel 0 holds inf"),
        ((GOOD + "1,?:b\n",), r"X_TRAIN\.ts: 1 missing value\(s\), the first in case 4"),
        (("1,2:a\n3,4:a\n",), r"X_TRAIN\.ts: 2 case\(s\) of one class only"),
        (("1,2:a\n3,4:b\n", "1,2:a\n"), r"X_TRAIN\.ts: 2 cases for 2 classes: every case has a label of"),
    ],
)
def test_what_training_would_refuse(parts: tuple[str, ...], words: str) -> None:
    with pytest.raises(DataError, match=words):
        check(*parts)


def test_too_few_cases_to_hold_some_out() -> None:
    words = r"2 of 4 cases are held out, .* no class keeps two\. Bring more cases or a TEST part"
    with pytest.raises(DataError, match=words):
        check("1,2:a\n3,4:a\n1,3:b\n5,6:b\n")
    check("1,2:a\n3,4:a\n1,3:b\n5,6:b\n", "1,2:a\n")
    with pytest.raises(DataError, match="2 of 4 cases are held out"):
        check(GOOD, held_out=0.9)


def test_labels_as_numbers() -> None:
    require_learnable(torch.tensor([0, 0, 1]), where="y")
    with pytest.raises(DataError, match=r"y: 2 case\(s\) of one class only"):
        require_learnable(torch.tensor([1, 1]), where="y")


def test_steps() -> None:
    require_steps(torch.tensor([2, 3]), where="X")
    with pytest.raises(DataError, match=r"X: case 1 has 0 time step\(s\).*\(2 such case\(s\)\)"):
        require_steps(torch.tensor([2, 0, 1]), where="X")
