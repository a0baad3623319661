"""From the paper's method to ours, one change at a time: the robust transform, the model with a drop, the policy.

    python -m benchmarks.ablation --suite taskset lcbench --seeds 5

Takes the arguments of benchmarks.regret; its games of the last line are the very games recorded there.
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
LINES = {  # each line differs from the one above it in one thing
    "paper": {"variant": "paper", "model": "paper", "policy": "entropy_search"},
    "+ transform": {"variant": "transform", "model": "paper", "policy": "entropy_search", "constants": (ROBUST,)},
    "+ drop": {"variant": "drop", "policy": "entropy_search"},
    "+ policy": {},
}


def summarise(found: list[dict], suite: str, mode: str) -> dict[str, dict]:
    """Of each line: mean regret at milestones, and what the line above has more, with its standard error."""
    games = report.gather(found, suite, mode, "regret")
    lines, above = {}, None
    for line, options in LINES.items():
        played = games.get(Setup("", 0, **options).method, {})
        entry = {"games": len(played), "mean": {}, "gain": {}}
        for at in AT:
            values = list(report.at_milestone(played, at).values())
            if values:
                entry["mean"][str(at)] = round(float(np.mean(values)), 4)
            gain = report.paired(above, played, at) if above else None
            if gain is not None:
                entry["gain"][str(at)] = {key: round(value, 4) for key, value in gain.items()}
        lines[line], above = entry, played
    return lines


def show(title: str, lines: dict[str, dict]) -> None:
    body = []
    for line, entry in lines.items():
        gains = [entry["gain"].get(str(at)) for at in AT]
        body.append(
            [line, str(entry["games"])]
            + [f"{entry['mean'][str(at)]:.3f}" if str(at) in entry["mean"] else "" for at in AT]
            + [f"{g['difference']:+.3f}±{g['error']:.3f}" if g else "" for g in gains]
        )
    print(f"\n{title}: mean regret, and the gain over the line above in the same games")
    print_table(["line", "games", *map(str, AT), *(f"gain {at}" for at in AT)], body)


def main() -> None:
    args = parser_of(__doc__).parse_args()
    games = selected(args)
    setups = [Setup(n, s, args.budget, m, **options) for n, s, m in games for options in LINES.values()]
    run(setups, args.out, args.processes)
    found = records.everything(args.out)
    summary = {f"{suite}, {mode}": summarise(found, suite, mode) for suite in args.suite for mode in args.mode}
    for title, lines in summary.items():
        show(title, lines)
    (args.out / "ablation.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
