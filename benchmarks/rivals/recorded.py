"""ifBO as recorded with the data: means over seeds for each table, one record with seed -1 for each."""

from __future__ import annotations

import json

from benchmarks import tables
from benchmarks.simulate import AT

NOTE = (
    "mean over 10 seeds (TaskSet) or 5 (LCBench), from ifbo_regret.json: FT-PFN retrained on 1.65 million synthetic "
    "data sets, rule MFPI-random, candidates are the first 1000 configurations"
)


def ifbo() -> list[dict]:
    folder = tables.data_folder()
    if folder is None:
        raise FileNotFoundError("no data: set FREEZETHAW_DATA to the folder that holds ifbo_regret.json")
    found = json.loads((folder / "ifbo_regret.json").read_text())
    return [_record(_full_name(name), regret) for name, regret in found.items()]


def _full_name(short: str) -> str:
    """The table whose name ends so: the file leaves out TaskSet's common prefix."""
    suite, rest = short.split("/")
    (name,) = [n for n in tables.load() if n.split("/")[0] == suite and (n == short or n.endswith(f"_imdb_{rest}"))]
    return name


def _record(name: str, regret: dict[str, float]) -> dict:
    return {
        "method": "ifBO",
        "version": "FT-PFN 1.65M",
        "table": name,
        "seed": -1,
        "mode": "candidates",
        "regret": {str(at): regret[str(at)] for at in AT if str(at) in regret},
        "seconds": None,
        "note": NOTE,
    }
