"""Ablation from the paper's method to the default, one change at a time: transform, model, policy.

    python -m benchmarks.ablation --suite taskset lcbench --seeds 5

Takes the arguments of benchmarks.regret; the simulations of the last line are those of benchmarks.regret.
"""

from __future__ import annotations

import json

import numpy as np

from benchmarks import records, report
from benchmarks.ours import Setup
from benchmarks.regret import parser_of, run, selected
from benchmarks.scores import print_table

AT = (50, 100, 200, 300)
ROBUST = ("model.loss_units.STANDARDISED", frozenset())  # the robust transform for the paper's model too
LINES = {  # each line differs from the one above in one option
    "paper": {"variant": "paper", "model": "paper", "policy": "entropy_search"},
    "+ transform": {"variant": "transform", "model": "paper", "policy": "entropy_search", "constants": (ROBUST,)},
    "+ drop": {"variant": "drop", "policy": "entropy_search"},
    "+ policy": {},
}


def summarise(found: list[dict], suite: str, mode: str) -> dict[str, dict]:
    """For each line: mean regret at milestones, and the gain over the line above, with its standard error."""
    simulations = report.gather(found, suite, mode, "regret")
    lines, above = {}, None
    for line, options in LINES.items():
        simulated = simulations.get(Setup("", 0, **options).method, {})
        entry = {"simulations": len(simulated), "mean": {}, "gain": {}}
        for at in AT:
            values = list(report.at_milestone(simulated, at).values())
            if values:
                entry["mean"][str(at)] = round(float(np.mean(values)), 4)
            gain = report.paired(above, simulated, at) if above else None
            if gain is not None:
                entry["gain"][str(at)] = {key: round(value, 4) for key, value in gain.items()}
        lines[line], above = entry, simulated
    return lines


def show(title: str, lines: dict[str, dict]) -> None:
    body = []
    for line, entry in lines.items():
        gains = [entry["gain"].get(str(at)) for at in AT]
        body.append(
            [line, str(entry["simulations"])]
            + [f"{entry['mean'][str(at)]:.3f}" if str(at) in entry["mean"] else "" for at in AT]
            + [f"{g['difference']:+.3f}±{g['error']:.3f}" if g else "" for g in gains]
        )
    print(f"\n{title}: mean regret, and the gain over the line above in the same simulations")
    print_table(["line", "simulations", *map(str, AT), *(f"gain {at}" for at in AT)], body)


def main() -> None:
    args = parser_of(__doc__).parse_args()
    simulations = selected(args)
    setups = [Setup(n, s, args.budget, m, **options) for n, s, m in simulations for options in LINES.values()]
    run(setups, args.out, args.processes)
    found = records.everything(args.out)
    summary = {f"{suite}, {mode}": summarise(found, suite, mode) for suite in args.suite for mode in args.mode}
    for title, lines in summary.items():
        show(title, lines)
    (args.out / "ablation.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
