"""Records of games: small JSON files, written whole, that say what is not to be played again."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "results" / "regret"
HARNESS = 2  # of the games: 2 since tables have their own spaces. What an older one recorded is played again


def read(file: Path) -> list[dict]:
    """The records of one file, of this harness only; none where it is not there."""
    found = json.loads(file.read_text()) if file.exists() else []
    return [r for r in found if r.get("harness") == HARNESS]


def save(file: Path, found: list[dict]) -> None:
    """Writes the records of one file whole, so that what is there can always be read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(r | {"harness": HARNESS}) for r in sorted(found, key=lambda r: (r["table"], r["seed"]))]
    draft = file.with_suffix(".part")
    draft.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    draft.replace(file)


def everything(folder: Path) -> list[dict]:
    """All recorded games, ours and rivals'; rivals that were not played anew as they were recorded once."""
    files = {file.name: file for file in sorted(FOLDER.glob("rival-*.json"))}
    files |= {file.name: file for pattern in ("ours-*.json", "rival-*.json") for file in sorted(folder.glob(pattern))}
    return [record for file in files.values() for record in read(file)]
