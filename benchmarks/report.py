"""The tables of all recorded games: means over each suite, differences from ours, ratios, and table by table."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.scores import print_table
from benchmarks.simulate import AT

OURS = "freezethaw"
ASHA = "ASHA promotion (Syne Tune)"
PAIRED = (50, 100, 200, 300, 1000)
SUITES = ("taskset", "lcbench", "arlbench")
AXES = {"regret": "epochs", "regret_by_seconds": "seconds, in epochs of the table's mean"}

Game = tuple[str, int]  # table, seed
Played = dict[Game, dict[str, float]]  # regret at each milestone


def gather(found: list[dict], suite: str, mode: str, axis: str) -> dict[str, Played]:
    """Regret of each method in each game. A milestone is read from the game with the smallest budget that has it."""
    games: dict[str, Played] = defaultdict(dict)
    for record in sorted(found, key=lambda r: -r.get("budget", 0)):
        if record["mode"] == mode and record["table"].startswith(f"{suite}/") and axis in record:
            games[record["method"]].setdefault((record["table"], record["seed"]), {}).update(record[axis])
    return dict(games)


def at_milestone(played: Played, at: int) -> dict[Game, float]:
    """Regret of those games that have this milestone."""
    return {game: regret[str(at)] for game, regret in played.items() if str(at) in regret}


def paired(theirs: Played, ours: Played, at: int) -> dict[str, float] | None:
    """Theirs less ours over games that both played, with its standard error.

    A rival recorded as means over seeds (seed -1) is held against our mean over seeds, table by table.
    """
    left, right = at_milestone(theirs, at), at_milestone(ours, at)
    if any(seed < 0 for _, seed in left):
        right = {(table, -1): float(np.mean(values)) for table, values in _by_table(right).items()}
    both = sorted(left.keys() & right.keys())
    if len(both) < 2:
        return None
    a, b = np.array([left[k] for k in both]), np.array([right[k] for k in both])
    error = float((a - b).std(ddof=1) / np.sqrt(len(both)))
    ratio = float(b.mean() / a.mean()) if a.mean() > 0 else float("nan")
    return {"difference": float((a - b).mean()), "error": error, "games": len(both), "ratio": ratio}


def summarise(games: dict[str, Played], baseline: str) -> dict[str, Any]:
    """Of each method: games, mean regret at milestones, and what it has more than the baseline at some of them."""
    ours = games.get(baseline, {})
    summary: dict[str, Any] = {}
    for method, played in games.items():
        means = {at: list(at_milestone(played, at).values()) for at in AT}
        summary[method] = {
            "games": len(played),
            "mean": {str(at): round(float(np.mean(v)), 4) for at, v in means.items() if v},
            "paired": {} if method == baseline else _all_paired(played, ours),
        }
    return summary


def _all_paired(played: Played, ours: Played) -> dict[str, dict[str, float]]:
    found = {str(at): paired(played, ours, at) for at in PAIRED}
    return {at: {k: round(v, 4) for k, v in pair.items()} for at, pair in found.items() if pair is not None}


def report(found: list[dict], baseline: str = OURS, by_table: bool = False) -> dict[str, Any]:
    """Prints all tables; the summary of them."""
    summary: dict[str, Any] = {}
    for axis, unit in AXES.items():
        for mode in ("candidates", "free"):
            for suite in SUITES:
                games = gather(found, suite, mode, axis)
                if not games:
                    continue
                name = f"{suite}, {mode}, by {unit}"
                told = f"{baseline}, seconds told"  # by seconds, the game in which the study knows them
                held = told if axis == "regret_by_seconds" and told in games else baseline
                summary[name] = summarise(games, held)
                print(f"\n{name}: mean regret, and what each has more than {held} in the same games")
                _print_suite(summary[name], held)
                if by_table:
                    _print_by_table(games, held)
    _print_ratios(found, summary, baseline)
    _print_diverging(found, summary, baseline)
    return summary


def _print_suite(summary: dict[str, Any], baseline: str) -> None:
    body = []
    for method in sorted(summary, key=lambda m: (m != baseline, not m.startswith(OURS), m)):
        entry = summary[method]
        row = [method, str(entry["games"]), *(_number(entry["mean"].get(str(at))) for at in AT)]
        for at in PAIRED:
            pair = entry["paired"].get(str(at))
            row.append(f"{pair['difference']:+.3f}±{pair['error']:.3f}" if pair else "")
        body.append(row)
    print_table(["method", "games", *map(str, AT), *(f"d{at}" for at in PAIRED)], body)


def _print_by_table(games: dict[str, Played], baseline: str) -> None:
    """Ours beside the rival that is best on each table, at 100 and at 200."""
    body = []
    ours = {at: _by_table(at_milestone(games.get(baseline, {}), at)) for at in (100, 200)}
    rivals = {m: played for m, played in games.items() if not m.startswith(OURS)}
    for table in sorted(ours[100]):
        row = [table]
        for at in (100, 200):
            mine = ours[at].get(table)
            theirs = {m: _by_table(at_milestone(played, at)).get(table) for m, played in rivals.items()}
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
    """Our regret over that of ASHA, over the same games; free over candidates; several workers over one."""
    summary["ratios"] = ratios = {}
    for suite in SUITES:
        games = gather(found, suite, "candidates", "regret")
        ours = games.get(baseline, {})
        wanted = {f"{baseline} / {ASHA}": (games.get(ASHA, {}), ours)}
        wanted["free / candidates"] = (ours, gather(found, suite, "free", "regret").get(baseline, {}))
        for method, played in games.items():
            if method.startswith(f"{baseline}, ") and method.endswith(" workers"):
                wanted[f"{method.removeprefix(baseline + ', ')} / one"] = (ours, played)
        for what, (below, above) in wanted.items():
            pairs = {str(at): paired(below, above, at) for at in PAIRED}
            line = {at: round(pair["ratio"], 3) for at, pair in pairs.items() if pair is not None}
            if line:
                ratios.setdefault(suite, {})[what] = line
    if ratios:
        print("\nratios of mean regret, over the same games")
        body = [
            [f"{s}: {what}", *(_number(v.get(str(at))) for at in PAIRED)]
            for s, r in ratios.items()
            for what, v in r.items()
        ]
        print_table(["ratio", *map(str, PAIRED)], body)


def _print_diverging(found: list[dict], summary: dict[str, Any], baseline: str) -> None:
    """Share of epochs, and of runs, on rows that diverge sooner or later; only tables that have such rows count."""
    summary["diverging"] = shares = {}
    for suite in SUITES:
        games = [r["diverging"] for r in found if r["method"] == baseline and r["table"].startswith(f"{suite}/")]
        games = [game for game in games if game["random"] > 0]
        if games:
            mean = shares[suite] = {key: round(float(np.mean([g[key] for g in games])), 4) for key in games[0]}
            print(
                f"\n{suite}: {mean['share']:.1%} of epochs on rows that diverge, at random {mean['random']:.1%};",
                end=" ",
            )
            print(f"{mean['runs']:.1%} of runs, at random {mean['random_runs']:.1%}")


def _by_table(regrets: dict[Game, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (table, _), value in regrets.items():
        found.setdefault(table, []).append(value)
    return found


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
