"""Records of the regret benchmark: raw files in build/, and a compact summary in benchmarks/results.

    python -m benchmarks.records                   add the raw records in build/regret to benchmarks/results/regret.json
    python -m benchmarks.records build/constants benchmarks/results/constants.json

Raw records, one for each benchmark run, are JSON files that are replaced atomically. They are not part of the
repository. The summary has the regret of each run at each milestone, in units of 1e-4, grouped by method, suite and
budget, with the commit of the code that produced it where it is known. `expand` turns it into records again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RAW = ROOT / "build" / "regret"
RESULTS = Path(__file__).parent / "results"
SUMMARY = RESULTS / "regret.json"
HARNESS = 2  # version of the simulation: 2 since tables have their own spaces; older records are ignored
MILESTONES = (25, 50, 100, 200, 300, 500, 1000)
UNIT = 1e-4  # of regrets in the summary
SHARES = ("share", "random", "runs", "random_runs")  # of rows that diverge
AXES = ("regret", "regret_by_seconds")
DETAILED = "freezethaw"  # the method whose shares of diverging rows are kept


def commit() -> str:
    """The commit of the code."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()


def write(file: Path, found: dict[str, Any]) -> None:
    """Write results with the commit of the code that produced them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found | {"commit": commit()}, indent=1, default=str) + "\n")


# Raw records.


def read(file: Path) -> list[dict]:
    """The records in a file, without those of older simulations; empty if there is no file."""
    found = json.loads(file.read_text()) if file.exists() else []
    return [r for r in found if r.get("harness") == HARNESS]


def save(file: Path, found: list[dict]) -> None:
    """Replace the records in a file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(r | {"harness": HARNESS}) for r in sorted(found, key=lambda r: (r["table"], r["seed"]))]
    draft = file.with_suffix(".part")
    draft.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    draft.replace(file)


def raw(folder: Path) -> list[dict]:
    """All raw records in a folder."""
    files = [file for pattern in ("ours-*.json", "rival-*.json") for file in sorted(folder.glob(pattern))]
    return [record for file in files for record in read(file)]


# The summary.


def published(file: Path = SUMMARY) -> list[dict]:
    """The records in a summary."""
    return expand(json.loads(file.read_text()))


def everything(folder: Path) -> list[dict]:
    """The raw records in a folder, and the published records of rivals that are not in it."""
    found = raw(folder)
    known = {(r["method"], r["table"].split("/")[0], r["mode"]) for r in found}
    rivals = [r for r in published() if not r["method"].startswith(DETAILED)]
    return found + [r for r in rivals if (r["method"], r["table"].split("/")[0], r["mode"]) not in known]


def summarise(found: list[dict]) -> dict[str, Any]:
    """The summary of records. Modes in which a method has the same records share a group."""
    groups: dict[tuple, dict[str, Any]] = {}
    for record in found:
        suite, table = record["table"].split("/", 1)
        about = {
            key: record[key] for key in ("method", "version", "policy", "model", "budget", "note") if key in record
        }
        about |= {key: record[key] for key in ("commit", "recorded", "mapped", "capped") if key in record}
        key = (suite, record["mode"], json.dumps(about, sort_keys=True))
        group = groups.setdefault(
            key, about | {"suite": suite, "modes": [record["mode"]], "tables": {}, "_seconds": []}
        )
        rows = group["tables"].setdefault(table, {"seeds": []})
        rows["seeds"].append(record["seed"])
        for axis in AXES:
            if axis in record:
                rows.setdefault(axis, []).append(_encoded(record[axis]))
        if "diverging" in record and record["method"] == DETAILED:
            rows.setdefault("diverging", []).append([_integer(record["diverging"][share]) for share in SHARES])
        if record.get("seconds"):
            group["_seconds"].append([record["seconds"]["median"], record["seconds"]["p99"]])
    merged: dict[str, dict[str, Any]] = {}
    for group in groups.values():
        seconds = group.pop("_seconds")
        if seconds:
            median, p99 = np.median(seconds, axis=0)
            group["decision_seconds"] = {"median": float(f"{median:.3g}"), "p99": float(f"{p99:.3g}")}
        same = json.dumps({k: v for k, v in group.items() if k not in ("modes", "mapped")}, sort_keys=True)
        if same in merged:
            merged[same]["modes"] += group["modes"]
        else:
            merged[same] = group
    return {"milestones": list(MILESTONES), "unit": UNIT, "groups": list(merged.values())}


def expand(summary: dict[str, Any]) -> list[dict]:
    """The records in a summary, with the regret of each run."""
    found = []
    for group in summary["groups"]:
        about = {key: value for key, value in group.items() if key not in ("suite", "modes", "tables")}
        for mode in group["modes"]:
            for table, rows in group["tables"].items():
                for place, seed in enumerate(rows["seeds"]):
                    record = about | {"table": f"{group['suite']}/{table}", "seed": seed, "mode": mode}
                    record |= {axis: _decoded(rows[axis][place], summary) for axis in AXES if axis in rows}
                    if "diverging" in rows:
                        shares = (summary["unit"] * value for value in rows["diverging"][place])
                        record["diverging"] = dict(zip(SHARES, shares, strict=True))
                    found.append(record)
    return found


def _integer(value: float) -> int:
    return round(value / UNIT)


def _encoded(regret: dict[str, float]) -> list[int | None]:
    values = [_integer(regret[str(at)]) if str(at) in regret else None for at in MILESTONES]
    while values and values[-1] is None:
        values.pop()
    return values


def _decoded(values: list[int | None], summary: dict[str, Any]) -> dict[str, float]:
    pairs = zip(summary["milestones"], values, strict=False)
    return {str(at): round(summary["unit"] * value, 4) for at, value in pairs if value is not None}


def write_summary(file: Path, summary: dict[str, Any]) -> None:
    """Write a summary, one line per group."""
    lines = [json.dumps(group, separators=(",", ":")) for group in summary["groups"]]
    head = json.dumps({key: value for key, value in summary.items() if key != "groups"})[:-1]
    file.write_text(head + ', "groups": [\n' + ",\n".join(lines) + "\n]}\n")


def publish(folder: Path = RAW, file: Path = SUMMARY) -> None:
    """Add the raw records in a folder to a summary; they replace those of the same methods, suites and budgets."""
    new = summarise(raw(folder))["groups"]
    old = json.loads(file.read_text())["groups"] if file.exists() else []
    replaced = defaultdict(set)
    for group in new:
        replaced[group["method"], group["suite"], group.get("budget")] |= set(group["modes"])
    kept = []
    for group in old:
        modes = [m for m in group["modes"] if m not in replaced[group["method"], group["suite"], group.get("budget")]]
        kept += [group | {"modes": modes}] if modes else []
    write_summary(file, {"milestones": list(MILESTONES), "unit": UNIT, "groups": kept + new})


if __name__ == "__main__":
    publish(*(Path(argument) for argument in sys.argv[1:3]))
