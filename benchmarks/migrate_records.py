"""Bring run folders of earlier versions to today's names, once; numbers are not touched.

    python benchmarks/migrate_records.py results

    task.network.reading = A, B, C      is task.network.cross_attention = softmax, aaren, none
    seconds.looking                     is seconds.evaluation

A folder's name ends with a digest of its config: that of today's protocol is computed again, so that `aaren
reproduce` still finds the run.
"""

import json
import sys
from pathlib import Path

from aaren.engine.config import from_record

WORDS = {"A": "softmax", "B": "aaren", "C": "none"}


def migrate(folder: Path) -> bool:
    """Rewrite one run folder; False if there is nothing to do."""
    path, toml = folder / "record.json", folder / "run.toml"
    record, text = json.loads(path.read_text()), toml.read_text() if toml.is_file() else ""
    network = record["config"]["task"].get("network", {})
    if "reading" not in network and "looking" not in record["seconds"]:
        return False
    if "reading" in network:
        word = network.pop("reading")
        network["cross_attention"] = WORDS[word]
        record["changed"] = [
            key.replace("network.reading", "network.cross_attention") for key in record["changed"]
        ]
        record["config"]["changed"] = record["changed"]
        record["command"] = record["command"].replace(f"reading={word}", f"cross_attention={WORDS[word]}")
        text = text.replace(f'reading = "{word}"', f'cross_attention = "{WORDS[word]}"')
        text = text.replace("network.reading", "network.cross_attention")
    if "looking" in record["seconds"]:
        names = {"looking": "evaluation"}
        record["seconds"] = {names.get(key, key): value for key, value in record["seconds"].items()}
    path.write_text(json.dumps(record, indent=1) + "\n")
    if text:
        toml.write_text(text)
        run = from_record(record["config"])
        if run.protocol == run.todays_protocol():
            folder.rename(folder.with_name(f"{folder.name.rpartition('-')[0]}-{run.digest()}"))
    return True


if __name__ == "__main__":
    found = [path.parent for path in sorted(Path(sys.argv[1]).rglob("record.json"))]
    print(f"{sum(map(migrate, found))} of {len(found)} run folders migrated.")
