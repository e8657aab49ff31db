from pathlib import Path

import pytest
import torch

from aaren.bench.publish import main, page_text
from aaren.bench.record import read_record
from token_cost import BENCHMARK, VIEWS, TokenSettings, build_views

TINY = TokenSettings(tokens=(4, 16), num_latents=3, heads=2, width=8, budget_seconds=0.05)


def test_views_of_one_query_agree() -> None:
    views = build_views(16, TINY)
    aaren = views["aaren"].take_token()
    assert aaren.shape == (1, 1, 2, 8)
    for name in ("transformer", "transformer_sdpa"):
        torch.testing.assert_close(views[name].take_token(), aaren)


def test_views_of_latents_agree() -> None:
    views = build_views(16, TINY)
    latents = views["perceiver"].take_token()
    assert latents.shape == (1, 3, 2, 8)
    torch.testing.assert_close(views["perceiver_sdpa"].take_token(), latents)


def test_the_first_token_has_nothing_before_it() -> None:
    views = build_views(1, TINY)
    torch.testing.assert_close(views["aaren"].take_token(), views["transformer_sdpa"].take_token())


def test_only_aaren_keeps_the_same_bytes() -> None:
    short, long = build_views(4, TINY), build_views(16, TINY)
    assert long["aaren"].kept_bytes == short["aaren"].kept_bytes == 2 * (8 + 2) * 8
    for name in VIEWS.keys() - {"aaren"}:
        assert long[name].kept_bytes == 4 * short[name].kept_bytes


def test_record_has_every_view_at_every_count() -> None:
    record = BENCHMARK.record(TINY)
    found = {(row["view"], row["tokens"]) for row in record.measurements}
    assert found == {(view, count) for view in VIEWS for count in (4, 16)}
    assert "growth over 4x tokens" in page_text(BENCHMARK, record)


def test_command_writes_record_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "token"
    main(BENCHMARK, ["--quick", "--record", f"{base}.json", "--figure", str(base)])
    assert "Time for one new token" in capsys.readouterr().out
    command = read_record(tmp_path / "token.json", kind="token").command
    assert command == "python benchmarks/token_cost.py --quick"
    assert (tmp_path / "token.png").exists()
    assert (tmp_path / "token.svg").exists()
