"""Sensitivity to constants: each constant of the decisions halved and doubled, on the same simulations as the default.

    python -m benchmarks.constants --seeds 1                       all constants, all tables: 28 x 37 simulations
    python -m benchmarks.constants --constant SURPRISE SPREAD      some of them
    python -m benchmarks.constants --report                        what is recorded
    python -m benchmarks.constants --report --baseline "freezethaw (SWEEPS-2)"

Takes the arguments of benchmarks.regret. Raw records are written to build/constants; by default the baseline is the
published one of benchmarks.regret.
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
    "decide.configurations.LISTED",
)
RECORDED = {"LEADING_RUNS": "CONTENDERS", "RESUME_HAZARD": "WAKING", "CHANGE_HAZARD": "CHANGING"}  # labels of results
RAW, SUMMARY = records.ROOT / "build" / "constants", records.RESULTS / "constants.json"
SHORT = {RECORDED.get(label, label): name for name in CONSTANTS for label in [name.rsplit(".", 1)[1]]}


def changed(short: str, factor: float) -> dict:
    """The options of a simulation with this constant times this factor."""
    module, name = SHORT[short].rsplit(".", 1)
    value = getattr(importlib.import_module(f"freezethaw.{module}"), name)
    return {"variant": f"{short}-{factor:g}", "constants": ((SHORT[short], type(value)(value * factor)),)}


def gather(found: list[dict], suites: list[str], mode: str) -> dict[str, report.Regrets]:
    """Regret of each method in each simulation of several suites."""
    simulations: dict[str, report.Regrets] = defaultdict(dict)
    for suite in suites:
        for method, simulated in report.gather(found, suite, mode, "regret").items():
            simulations[method] |= simulated
    return dict(simulations)


def summarise(
    simulations: dict[str, report.Regrets], shorts: list[str], baseline: str = report.OURS
) -> dict[str, dict]:
    """For each constant and factor: mean regret, and the gain over the baseline in the same simulations."""
    lines = {}
    for short in shorts:
        for factor in FACTORS:
            simulated = simulations.get(Setup("", 0, **changed(short, factor)).method, {})
            if simulated:
                gains = {at: report.paired(simulations.get(baseline, {}), simulated, at) for at in AT}
                lines[f"{short} x {factor:g}"] = {
                    "simulations": len(simulated),
                    "mean": {str(at): round(float(np.mean(list(v.values()))), 4) for at, v in _regrets(simulated)},
                    "gain": {str(at): {k: round(v, 4) for k, v in g.items()} for at, g in gains.items() if g},
                }
    return lines


def _regrets(simulated: report.Regrets) -> list[tuple[int, dict]]:
    """Regrets at the milestones that were reached."""
    found = [(at, report.at_milestone(simulated, at)) for at in AT]
    return [(at, regret) for at, regret in found if regret]


def show(title: str, lines: dict[str, dict]) -> None:
    """Print the table of one suite."""
    body = [
        [line, str(entry["simulations"])]
        + [f"{entry['mean'][str(at)]:.3f}" if str(at) in entry["mean"] else "" for at in AT]
        + [f"{g['difference']:+.3f}±{g['error']:.3f}" if (g := entry["gain"].get(str(at))) else "" for at in AT]
        for line, entry in lines.items()
    ]
    print(f"\n{title}: mean regret, and the gain over the baseline in the same simulations")
    print_table(["constant", "simulations", *map(str, AT), *(f"gain {at}" for at in AT)], body)


def main() -> None:
    """Run what is not recorded, and print the tables."""
    parser = parser_of(__doc__)
    parser.set_defaults(out=RAW, seeds=1)
    parser.add_argument("--constant", nargs="+", default=list(SHORT), choices=list(SHORT))
    parser.add_argument(
        "--report", action="store_true", help="only print the published summary, or with --out the raw records"
    )
    parser.add_argument("--baseline", default=report.OURS, help="the method to compare with")
    args = parser.parse_args()
    if not args.report:
        kinds = [changed(short, factor) for short in args.constant for factor in FACTORS]
        run(
            [Setup(n, s, args.budget, m, **kind) for n, s, m in selected(args) for kind in kinds],
            args.out,
            args.processes,
        )
    own = records.published(SUMMARY) if args.report and args.out == RAW else records.raw(args.out)
    found = own + records.published()
    if found and args.baseline not in (known := {record["method"] for record in found}):
        parser.error(f"there is no method {args.baseline!r}; there are: {', '.join(sorted(known))}")
    parts = {suite: [suite] for suite in args.suite} | {"all": args.suite}
    summary = {
        f"{title}, {mode}": summarise(gather(found, suites, mode), args.constant, args.baseline)
        for mode in args.mode
        for title, suites in parts.items()
    }
    if not any(summary.values()):
        parser.exit(message=f"nothing is recorded in {args.out}: run without --report first\n")
    for title, lines in summary.items():
        if lines:
            show(title, lines)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
