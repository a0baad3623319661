"""Tables of all recorded simulations: means of each suite, paired differences, ratios, and table by table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.scores import print_table
from benchmarks.simulate import AT

OURS = "freezethaw"
ASHA = "ASHA promotion (Syne Tune)"
PAIRED = (50, 100, 200, 300, 1000)
SUITES = ("taskset", "lcbench", "arlbench")
HARDER = tuple(f"{kind}-{suite}" for kind in tables.HARDER for suite in SUITES)
AXES = {"regret": "epochs", "regret_by_seconds": "seconds, in epochs of the table's mean"}

Key = tuple[str, int]  # table, seed
Regrets = dict[Key, dict[str, float]]  # by simulation: regret at each milestone


def gather(found: list[dict], suite: str, mode: str, axis: str) -> dict[str, Regrets]:
    """Regret of each method in each simulation. A milestone is taken from the smallest budget that has it."""
    simulations: dict[str, Regrets] = defaultdict(dict)
    for record in sorted(found, key=lambda r: -r.get("budget", 0)):
        if record["mode"] == mode and record["table"].startswith(f"{suite}/") and axis in record:
            simulations[record["method"]].setdefault((record["table"], record["seed"]), {}).update(record[axis])
    return dict(simulations)


def at_milestone(simulated: Regrets, at: int) -> dict[Key, float]:
    """Regret of the simulations that have this milestone."""
    return {simulation: regret[str(at)] for simulation, regret in simulated.items() if str(at) in regret}


def paired(theirs: Regrets, ours: Regrets, at: int) -> dict[str, float] | None:
    """The mean difference, theirs minus ours, over common simulations, with its standard error clustered by table.

    Simulations on one table are not independent: which of two methods is better there is alike for all seeds. A rival
    recorded as means over seeds (seed -1) is compared with our mean over seeds, by table.
    """
    left, right = at_milestone(theirs, at), at_milestone(ours, at)
    if any(seed < 0 for _, seed in left):
        right = {(table, -1): float(np.mean(values)) for table, values in _by_table(right).items()}
    both = sorted(left.keys() & right.keys())
    if len(both) < 2:
        return None
    a, b = np.array([left[k] for k in both]), np.array([right[k] for k in both])
    error = clustered_error(a - b, [table for table, _ in both])
    ratio = float(b.mean() / a.mean()) if a.mean() > 0 else float("nan")
    return {"difference": float((a - b).mean()), "error": error, "simulations": len(both), "ratio": ratio}


def clustered_error(differences: np.ndarray, clusters: Sequence[str]) -> float:
    """Standard error of the mean of differences that are independent between clusters only."""
    centred = differences - differences.mean()
    names, places = np.unique(clusters, return_inverse=True)
    if len(names) == 1:
        return float(differences.std(ddof=1) / np.sqrt(len(differences)))
    sums = np.bincount(places, weights=centred)
    return float(np.sqrt(len(names) / (len(names) - 1) * (sums**2).sum()) / len(differences))


def summarise(simulations: dict[str, Regrets], baseline: str) -> dict[str, Any]:
    """For each method: number of simulations, mean regret, and the paired difference from the baseline."""
    ours = simulations.get(baseline, {})
    summary: dict[str, Any] = {}
    for method, simulated in simulations.items():
        means = {at: list(at_milestone(simulated, at).values()) for at in AT}
        summary[method] = {
            "simulations": len(simulated),
            "mean": {str(at): round(float(np.mean(v)), 4) for at, v in means.items() if v},
            "paired": {} if method == baseline else _all_paired(simulated, ours),
        }
    return summary


def _all_paired(simulated: Regrets, ours: Regrets) -> dict[str, dict[str, float]]:
    found = {str(at): paired(simulated, ours, at) for at in PAIRED}
    return {at: {k: round(v, 4) for k, v in pair.items()} for at, pair in found.items() if pair is not None}


def report(found: list[dict], baseline: str = OURS, by_table: bool = False) -> dict[str, Any]:
    """Print all tables and return their summary."""
    summary: dict[str, Any] = {}
    for axis, unit in AXES.items():
        for mode in ("candidates", "free"):
            for suite in SUITES + HARDER:
                simulations = gather(found, suite, mode, axis)
                if not simulations:
                    continue
                name = f"{suite}, {mode}, by {unit}"
                timed = f"{baseline}, seconds told"
                reference = timed if axis == "regret_by_seconds" and timed in simulations else baseline
                summary[name] = summarise(simulations, reference)
                print(f"\n{name}: mean regret, and the difference from {reference} in the same simulations")
                _print_suite(summary[name], reference)
                if by_table:
                    _print_by_table(simulations, reference)
    _print_ratios(found, summary, baseline)
    _print_diverging(found, summary, baseline)
    return summary


def _print_suite(summary: dict[str, Any], baseline: str) -> None:
    body = []
    for method in sorted(summary, key=lambda m: (m != baseline, not m.startswith(OURS), m)):
        entry = summary[method]
        row = [method, str(entry["simulations"]), *(_number(entry["mean"].get(str(at))) for at in AT)]
        for at in PAIRED:
            pair = entry["paired"].get(str(at))
            row.append(f"{pair['difference']:+.3f}±{pair['error']:.3f}" if pair else "")
        body.append(row)
    print_table(["method", "simulations", *map(str, AT), *(f"d{at}" for at in PAIRED)], body)


def _print_by_table(simulations: dict[str, Regrets], baseline: str) -> None:
    """Ours and the best rival of each table, after 100 and 200 epochs."""
    body = []
    ours = {at: _by_table(at_milestone(simulations.get(baseline, {}), at)) for at in (100, 200)}
    rivals = {m: simulated for m, simulated in simulations.items() if not m.startswith(OURS)}
    for table in sorted(ours[100]):
        row = [table]
        for at in (100, 200):
            mine = ours[at].get(table)
            theirs = {m: _by_table(at_milestone(simulated, at)).get(table) for m, simulated in rivals.items()}
            theirs = {m: float(np.mean(values)) for m, values in theirs.items() if values}
            if not mine or not theirs:
                row += ["", "", "", ""]
                continue
            best = min(theirs, key=theirs.__getitem__)
            gap = theirs[best] - float(np.mean(mine))
            row += [_number(float(np.mean(mine))), _number(theirs[best]), f"{gap:+.3f}", best]
        body.append(row)
    if body:
        print_table(
            ["table", *(f"{w}{at}" for at in (100, 200) for w in ("ours ", "best rival ", "gap ", "rival "))], body
        )


def _print_ratios(found: list[dict], summary: dict[str, Any], baseline: str) -> None:
    """Ratios over common simulations: ours to ASHA, free to candidates, several workers to one."""
    summary["ratios"] = ratios = {}
    for suite in SUITES:
        simulations = gather(found, suite, "candidates", "regret")
        ours = simulations.get(baseline, {})
        wanted = {f"{baseline} / {ASHA}": (simulations.get(ASHA, {}), ours)}
        wanted["free / candidates"] = (ours, gather(found, suite, "free", "regret").get(baseline, {}))
        for method, simulated in simulations.items():
            if method.startswith(f"{baseline}, ") and method.endswith(" workers"):
                wanted[f"{method.removeprefix(baseline + ', ')} / one"] = (ours, simulated)
        for what, (below, above) in wanted.items():
            pairs = {str(at): paired(below, above, at) for at in PAIRED}
            line = {at: round(pair["ratio"], 3) for at, pair in pairs.items() if pair is not None}
            if line:
                ratios.setdefault(suite, {})[what] = line
    if ratios:
        print("\nratios of mean regret, over the same simulations")
        body = [
            [f"{s}: {what}", *(_number(v.get(str(at))) for at in PAIRED)]
            for s, r in ratios.items()
            for what, v in r.items()
        ]
        print_table(["ratio", *map(str, PAIRED)], body)


def _print_diverging(found: list[dict], summary: dict[str, Any], baseline: str) -> None:
    """Share of epochs and of runs on rows that diverge, over tables that have such rows."""
    summary["diverging"] = shares = {}
    for suite in SUITES:
        simulations = [
            r["diverging"]
            for r in found
            if r["method"] == baseline and "diverging" in r and r["table"].startswith(f"{suite}/")
        ]
        simulations = [simulation for simulation in simulations if simulation["random"] > 0]
        if simulations:
            mean = shares[suite] = {
                key: round(float(np.mean([g[key] for g in simulations])), 4) for key in simulations[0]
            }
            print(
                f"\n{suite}: {mean['share']:.1%} of epochs on rows that diverge, at random {mean['random']:.1%};",
                end=" ",
            )
            print(f"{mean['runs']:.1%} of runs, at random {mean['random_runs']:.1%}")


def _by_table(regrets: dict[Key, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (table, _), value in regrets.items():
        found.setdefault(table, []).append(value)
    return found


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
