"""Does it matter? Every constant of the decisions halved and doubled, in games that the default has played too.

    python -m benchmarks.constants --seeds 1                       all constants, all tables: 28 x 37 games
    python -m benchmarks.constants --constant SURPRISE SPREAD      some of them
    python -m benchmarks.constants --report                        what is recorded
    python -m benchmarks.constants --report --baseline "freezethaw (SWEEPS-2)"

Takes the arguments of benchmarks.regret. Games are kept in benchmarks/results/constants as they end, and those of the
default are the recorded ones of benchmarks.regret, unless another baseline is named.
"""

from __future__ import annotations

import importlib
import json
from collections import defaultdict

import numpy as np

from benchmarks import records, report
from benchmarks.ours import Setup
from benchmarks.regret import parser_of, run, selected
from benchmarks.scores import print_table

AT = (50, 100, 200, 300)
FACTORS = (0.5, 2.0)
CONSTANTS = (
    "policy.surprise.SURPRISE",
    "policy.improvement_rate.SPREAD",
    "policy.improvement_rate.OLD_BASKET",
    "policy.improvement_rate.NEW_BASKET",
    "policy.acquisition.LEADING_RUNS",
    "losses.PLATEAU",
    "losses.SMALL_CHANGE",
    "model.loss_units.BLEND",
    "model.loss_units.BLEND_RUNS",
    "model.sequential.SWEEPS",
    "model.scales.STALLED",
    "model.scales.RESUME_HAZARD",
    "model.scales.CHANGE_HAZARD",
    "study.chooser.LISTED",
)
RECORDED = {"LEADING_RUNS": "CONTENDERS", "RESUME_HAZARD": "WAKING", "CHANGE_HAZARD": "CHANGING"}  # labels of results
SHORT = {RECORDED.get(label, label): name for name in CONSTANTS for label in [name.rsplit(".", 1)[1]]}


def changed(short: str, factor: float) -> dict:
    """What a game with this constant times this factor has of its own."""
    module, name = SHORT[short].rsplit(".", 1)
    value = getattr(importlib.import_module(f"freezethaw.{module}"), name)
    return {"variant": f"{short}-{factor:g}", "constants": ((SHORT[short], type(value)(value * factor)),)}


def gather(found: list[dict], suites: list[str], mode: str) -> dict[str, report.Played]:
    """Regret of each method in each game of these suites together."""
    games: dict[str, report.Played] = defaultdict(dict)
    for suite in suites:
        for method, played in report.gather(found, suite, mode, "regret").items():
            games[method] |= played
    return dict(games)


def summarise(games: dict[str, report.Played], shorts: list[str], baseline: str = report.OURS) -> dict[str, dict]:
    """Of each constant and factor: mean regret, and what the change gains over the baseline in the same games."""
    lines = {}
    for short in shorts:
        for factor in FACTORS:
            played = games.get(Setup("", 0, **changed(short, factor)).method, {})
            if played:
                gains = {at: report.paired(games.get(baseline, {}), played, at) for at in AT}
                lines[f"{short} x {factor:g}"] = {
                    "games": len(played),
                    "mean": {str(at): round(float(np.mean(list(v.values()))), 4) for at, v in _regrets(played)},
                    "gain": {str(at): {k: round(v, 4) for k, v in g.items()} for at, g in gains.items() if g},
                }
    return lines


def _regrets(played: report.Played) -> list[tuple[int, dict]]:
    """At those milestones that the games reached."""
    found = [(at, report.at_milestone(played, at)) for at in AT]
    return [(at, regret) for at, regret in found if regret]


def show(title: str, lines: dict[str, dict]) -> None:
    """A table for one suite."""
    body = [
        [line, str(entry["games"])]
        + [f"{entry['mean'][str(at)]:.3f}" if str(at) in entry["mean"] else "" for at in AT]
        + [f"{g['difference']:+.3f}±{g['error']:.3f}" if (g := entry["gain"].get(str(at))) else "" for at in AT]
        for line, entry in lines.items()
    ]
    print(f"\n{title}: mean regret, and the gain over the baseline in the same games")
    print_table(["constant", "games", *map(str, AT), *(f"gain {at}" for at in AT)], body)


def main() -> None:
    """Play what is not recorded yet, print and keep."""
    parser = parser_of(__doc__)
    parser.set_defaults(out=records.FOLDER.parent / "constants", seeds=1)
    parser.add_argument("--constant", nargs="+", default=list(SHORT), choices=list(SHORT))
    parser.add_argument("--report", action="store_true", help="only print what is recorded")
    parser.add_argument("--baseline", default=report.OURS, help="the method that others are held to, as recorded")
    args = parser.parse_args()
    if not args.report:
        kinds = [changed(short, factor) for short in args.constant for factor in FACTORS]
        run(
            [Setup(n, s, args.budget, m, **kind) for n, s, m in selected(args) for kind in kinds],
            args.out,
            args.processes,
        )
    found = records.everything(args.out) + records.everything(records.FOLDER)
    if found and args.baseline not in (known := {record["method"] for record in found}):
        parser.error(f"nobody called {args.baseline!r} has played; recorded are: {', '.join(sorted(known))}")
    parts = {suite: [suite] for suite in args.suite} | {"all": args.suite}
    summary = {
        f"{title}, {mode}": summarise(gather(found, suites, mode), args.constant, args.baseline)
        for mode in args.mode
        for title, suites in parts.items()
    }
    if not any(summary.values()):
        parser.exit(message=f"nothing is recorded in {args.out}: play first, without --report\n")
    for title, lines in summary.items():
        if lines:
            show(title, lines)
    (args.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
