import zipfile
from pathlib import Path

import numpy as np
import pytest

from aaren.datasets.convert import CONVERTERS


def test_fold_texts_become_sequences_with_a_split(tmp_path: Path) -> None:
    texts = {
        "time-1-train": "0 1 2 \n0 5\n0 6\n",
        "event-1-train": "3 1 3 \n1 1\n1 9\n",
        "time-1-test": "0 7\n",
        "event-1-test": "9 9\n",
    }
    sources = tuple(tmp_path / f"{name}.txt" for name in texts)
    for source, text in zip(sources, texts.values(), strict=True):
        source.write_text(text)
    CONVERTERS["folds"](sources, (tmp_path / "out.npz",), {"validation": 1})
    with np.load(tmp_path / "out.npz") as out:
        assert out["times"].tolist() == [0, 1, 2, 0, 5, 0, 6, 0, 7]
        assert out["offsets"].tolist() == [0, 3, 5, 7, 9]
        assert out["marks"].tolist() == [1, 0, 1, 0, 0, 0, 2, 2, 2]
        assert out["split"].tolist() == [0, 0, 1, 2]


def test_interactions_become_one_sequence_per_key_without_ties(tmp_path: Path) -> None:
    table = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
    table += "0,7,1.0,0,0.1,0.2\n1,7,2.0,0,0.1,0.2\n0,8,3.0,0,0.1,0.2\n2,7,2.0,0,0.1,0.2\n"
    (tmp_path / "in.csv").write_text(table)
    CONVERTERS["jodie-items"]((tmp_path / "in.csv",), (tmp_path / "items.npz",), {})
    with np.load(tmp_path / "items.npz") as out:
        assert out["times"].tolist() == [1, 2, 3]  # user 2 came at the same moment as user 1
        assert out["offsets"].tolist() == [0, 2, 3]
        assert out["marks"].tolist() == [0, 1, 0]
    CONVERTERS["jodie-users"]((tmp_path / "in.csv",), (tmp_path / "users.npz",), {})
    with np.load(tmp_path / "users.npz") as out:
        assert out["offsets"].tolist() == [0, 2, 3, 4]


def test_uber_pickups_are_grouped_by_base_and_zone(tmp_path: Path) -> None:
    lines = ["Dispatching_base_num,Pickup_date,Affiliated_base_num,locationID"]
    lines += [f"B1,2015-01-01 {hour:02}:{minute:02}:00,B1,5" for hour in range(2) for minute in range(60)]
    lines += ["B2,2015-01-02 00:00:00,B2,5"]
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        archive.writestr("uber-raw-data-janjune-15.csv", "\n".join(lines))
    CONVERTERS["uber"]((tmp_path / "in.zip",), (tmp_path / "out.npz",), {})
    with np.load(tmp_path / "out.npz") as out:
        assert out["offsets"].tolist() == [0, 120]
        assert out["times"][61] == pytest.approx(61 / 60)
        assert "marks" not in out


def test_the_public_interactions_give_the_registered_wiki(mirror: Path, tmp_path: Path) -> None:
    with np.load(mirror / "events" / "wiki_edges_jodie.npz") as edges:
        table = np.stack([edges["user"], edges["item"], edges["ts"]], axis=1)
    np.savetxt(tmp_path / "wikipedia.csv", table, delimiter=",", fmt="%d", header="user,item,time")
    CONVERTERS["jodie-items"]((tmp_path / "wikipedia.csv",), (tmp_path / "wiki.npz",), {})
    with np.load(tmp_path / "wiki.npz") as made, np.load(mirror / "events" / "wiki.npz") as known:
        assert made["offsets"].tolist() == known["offsets"].tolist()
        assert len(np.unique(made["marks"])) == 8227
