"""Fill in the tables of benchmarks.md and guides/learn_from.md from benchmarks/results: `python -m docs.measured`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import records
from benchmarks.ablation import LINES
from benchmarks.ours import Setup
from benchmarks.report import ASHA, OURS, SUITES, at_milestone, gather, paired

from docs.one_decision import filled
from freezethaw import figures
from freezethaw.figures.style import COLOURS, graph_objects

PAGE = Path(__file__).parent / "benchmarks.md"
GUIDE = Path(__file__).parent / "guides" / "learn_from.md"
IMAGES = Path(__file__).parent / "images"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
PRESENT = RESULTS / "regret_present.json"  # of the present version; the other simulations are of version 0.1.0
AT = (25, 50, 100, 200, 300)
METHODS = {  # as recorded -> as shown
    "freezethaw": "freezethaw",
    "ASHA promotion (Syne Tune)": "ASHA (Syne Tune)",
    "ASHA promotion (rule of the paper)": "ASHA (rule of its paper)",
    "DEHB": "DEHB",
    "TPE + Hyperband (Optuna)": "TPE + Hyperband (Optuna)",
    "random": "random",
}
NAMES = {"taskset": "TaskSet", "lcbench": "LCBench", "arlbench": "ARLBench", "deepobs": "DeepOBS"}
OTHERS = {  # other kinds of simulations: mode, axis, milestone, and our method there
    "proposals anywhere, after 200 epochs": ("free", "regret", 200, OURS),
    "eight workers, after 200 epochs": ("candidates", "regret", 200, f"{OURS}, 8 workers"),
    "seconds told, after 200 mean epochs": ("candidates", "regret_by_seconds", 200, f"{OURS}, seconds told"),
    "a long search, after 500 epochs": ("candidates", "regret", 500, OURS),
    "a long search, after 1000 epochs": ("candidates", "regret", 1000, OURS),
}
KINDS = {  # of earlier studies, as recorded -> as shown
    "related": "other tables of the suite",
    "shuffled": "their curves, of other configurations",
    "permuted": "parameters exchanged",
    "flipped": "signs of losses changed",
    "arlbench": "reinforcement learning",
}
LEARNT = {"enqueued": "best old configurations first", "learn_from": "`learn_from`"}
FORMAT_ONLY = ("Benchmarks, experiments and errors: plain wording", "Benchmarks: one summary per benchmark")
SUMMARIES = ("regret.json",)  # whose groups have commits of their own
Regrets = dict[str, dict[str, dict[int, tuple[float, float, int]]]]  # suite, method, epochs: mean, error, simulations


def kept(name: str) -> dict[str, Any]:
    """A file of results."""
    return dict(json.loads((RESULTS / name).read_text(encoding="utf-8")))


def regrets() -> Regrets:
    """Means over the simulations that all methods have simulated."""
    found: Regrets = {}
    every = records.published()
    for suite in SUITES:
        simulations = {
            m: simulated for m, simulated in gather(every, suite, "candidates", "regret").items() if m in METHODS
        }
        found[suite] = {}
        for at in AT:
            simulated = {method: at_milestone(simulations[method], at) for method in simulations}
            common = sorted(set.intersection(*(set(p) for p in simulated.values())))
            for method, regret in simulated.items():
                values = np.array([regret[simulation] for simulation in common])
                error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
                found[suite].setdefault(method, {})[at] = float(values.mean()), error, len(common)
    return found


def regret_table(found: Regrets) -> str:
    """After 50, 100, 200 and 300 epochs."""
    lines = [f"| suite | simulations | {' | '.join(METHODS.values())} |", "|---" * (len(METHODS) + 2) + "|"]
    for suite, methods in found.items():
        cells = [" / ".join(f"{methods[m][at][0]:.2f}" for at in AT[1:]) if m in methods else "" for m in METHODS]
        simulations = methods["freezethaw"][AT[-1]][2]
        lines.append(f"| {NAMES[suite]} | {simulations} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rivals_table(every: list[dict[str, Any]]) -> str:
    """Every rival that was run, beside ours in the same simulations; errors are over tables, not over simulations."""
    lines = ["| suite | rival | tables, simulations | rival's regret | ours is lower by |", "|---" * 5 + "|"]
    for suite in SUITES:
        simulations = gather(every, suite, "candidates", "regret")
        rivals = {m: METHODS.get(m, m) for m in sorted(simulations) if not m.startswith(OURS)}
        lines += _beside(suite, simulations[OURS], simulations, rivals)
    return "\n".join(lines) + "\n"


def present_table(every: list[dict[str, Any]], present: list[dict[str, Any]]) -> str:
    """The present version beside version 0.1.0 and rivals in the same simulations."""
    lines = [
        "| suite | beside | tables, simulations | its regret | the present version is lower by |",
        "|---" * 5 + "|",
    ]
    for suite in SUITES:
        ours = gather(present, suite, "candidates", "regret")[OURS]
        means = [f"{np.mean(list(at_milestone(ours, at).values())):.2f}" for at in AT[1:]]
        lines.append(f"| **{NAMES[suite]}** | **the present version** | {len(ours)} | **{' / '.join(means)}** | |")
        shown = METHODS | {OURS: "freezethaw 0.1.0"}
        lines += _beside(suite, ours, gather(every, suite, "candidates", "regret"), shown)
    return "\n".join(lines) + "\n"


def _beside(suite: str, ours: Any, simulations: dict[str, Any], methods: dict[str, str]) -> list[str]:
    """A line for each method: its regret, and by how much ours is lower in the same simulations."""
    lines = []
    for method, name in methods.items():
        regrets, gains, count, tables = [], [], 0, 0
        for at in AT[1:]:
            both = _same(at_milestone(simulations[method], at), at_milestone(ours, at))
            if len(both) < 2:  # one table has no error
                continue
            theirs, own = (np.array([np.mean(v, axis=0)[k] for v in both.values()]) for k in (0, 1))
            regrets.append(f"{theirs.mean():.2f}")
            error = float((theirs - own).std(ddof=1) / np.sqrt(len(both)))
            gains.append(f"{float((theirs - own).mean()):+.2f} ± {error:.2f}")
            count, tables = sum(len(v) for v in both.values()), len(both)
        if gains:
            lines.append(
                f"| {NAMES[suite]} | {name} | {tables}, {count} | {' / '.join(regrets)} | {' / '.join(gains)} |"
            )
    return lines


def _same(theirs: dict[Any, float], ours: dict[Any, float]) -> dict[str, list[tuple[float, float]]]:
    """Pairs of regrets by table; a rival recorded as means over seeds (seed -1) is paired with our mean."""
    found: dict[str, list[tuple[float, float]]] = {}
    for (table, seed), regret in theirs.items():
        if seed < 0:
            own = [r for (other, _), r in ours.items() if other == table]
            pair = [(regret, float(np.mean(own)))] if own else []
        else:
            pair = [(regret, ours[table, seed])] if (table, seed) in ours else []
        if pair:
            found.setdefault(table, []).extend(pair)
    return found


def ftpfn_table() -> str:
    """The default model beside FT-PFN: log-likelihood, and squared error in thousandths."""
    lines = ["| suite | queries | default | FT-PFN |", "|---" * 4 + "|"]
    for suite, queries in kept("forecast_ftpfn.json")["results"].items():
        kinds = {"later": "later losses", "repeated": "repeated losses", "unseen": "unseen configurations"}
        for kind, name in kinds.items():
            if kind not in queries:
                continue
            cells = [
                f"{queries[kind][m]['log_likelihood']:.2f} / {1000 * queries[kind][m]['squared_error']:.2f}"
                for m in ("drift", "ft-pfn")
            ]
            lines.append(f"| {NAMES[suite]} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def common_means(simulations: dict[str, Any], methods: list[str], at: int) -> tuple[list[float], int]:
    """Mean regret of each method over the simulations that all of them have simulated, and how many those are."""
    simulated = [at_milestone(simulations[method], at) for method in methods]
    common = sorted(set.intersection(*(set(p) for p in simulated)))
    return [float(np.mean([p[simulation] for simulation in common])) for p in simulated], len(common)


def others_table(every: list[dict[str, Any]]) -> str:
    """Other kinds of simulations, beside the same ones simulated as above and beside ASHA."""
    lines = [
        "| kind | suite | simulations | freezethaw | as in the table above | ASHA (Syne Tune) |",
        "|---" * 6 + "|",
    ]
    for kind, (mode, axis, at, method) in OTHERS.items():
        for suite in SUITES:
            simulations = gather(every, suite, mode, axis)
            if method not in simulations or not at_milestone(simulations[method], at):
                continue
            usual = gather(every, suite, "candidates", axis)[OURS]
            both = {"ours": simulations[method], "usual": usual, "asha": simulations[ASHA]}
            (ours, same, asha), count = common_means(both, list(both), at)
            beside = "" if (method, mode) == (OURS, "candidates") else f"{same:.2f}"
            lines.append(f"| {kind} | {NAMES[suite]} | {count} | {ours:.2f} | {beside} | {asha:.2f} |")
    return "\n".join(lines) + "\n"


def ablation_table(every: list[dict[str, Any]]) -> str:
    """From the paper's method to ours, one change at a time."""
    lines = ["| | suite | simulations | regret after 50 / 100 / 200 / 300 epochs |", "|---" * 4 + "|"]
    names = {line: Setup("", 0, **options).method for line, options in LINES.items()}
    for suite in SUITES:
        simulations = gather(every, suite, "candidates", "regret")
        there = {line: method for line, method in names.items() if method in simulations}
        means = {at: common_means(simulations, list(there.values()), at) for at in AT[1:]}
        for place, line in enumerate(there):
            cells = " / ".join(f"{means[at][0][place]:.2f}" for at in AT[1:])
            lines.append(f"| {line} | {NAMES[suite]} | {means[AT[-1]][1]} | {cells} |")
    return "\n".join(lines) + "\n"


def policies_table(every: list[dict[str, Any]]) -> str:
    """The other policies on the default's model: their regret, and what they gain over it in the same simulations."""
    lines = ["| policy | suite | simulations | regret after 50 / 100 / 200 / 300 epochs | gain over the default |"]
    lines.append("|---" * 5 + "|")
    for policy in ("entropy_search",):
        for suite in SUITES:
            simulations = gather(every, suite, "candidates", "regret")
            simulated = {
                simulation: r
                for simulation, r in simulations[f"{OURS} ({policy})"].items()
                if simulation in simulations[OURS]
            }
            regret = " / ".join(f"{np.mean(list(at_milestone(simulated, at).values())):.2f}" for at in AT[1:])
            gains = [gain for at in AT[1:] if (gain := paired(simulations[OURS], simulated, at)) is not None]
            gained = " / ".join(f"{g['difference']:+.2f} ± {g['error']:.2f}" for g in gains)
            lines.append(f"| `{policy}` | {NAMES[suite]} | {len(simulated)} | {regret} | {gained} |")
    return "\n".join(lines) + "\n"


def forecast_table() -> str:
    """Log-likelihood, CRPS and squared error of later losses, and how often the bands hold; repeated losses apart."""
    lines = [
        "| suite | queries | default | paper's model | last value | power law | 90 % band | 50 % band |",
        "|---" * 8 + "|",
    ]
    for suite, queries in kept("forecast.json")["results"].items():
        for kind in ("later", "repeated"):
            found = queries.get(kind, {})
            if not found:
                continue
            methods = [found[m] for m in ("drift", "paper", "last", "power")]
            cells = [
                f"{f['log_likelihood']:.2f} / {1000 * f['crps']:.1f} / {1000 * f['squared_error']:.2f}" for f in methods
            ]
            cells += [f"{100 * found['drift'][k]:.0f} %" for k in ("covered_90", "covered_50")]
            lines.append(f"| {NAMES[suite]} | {found['drift']['queries']} {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def clock_table() -> str:
    """The lowest loss of real trainings by the clock, and when the final loss of the best rival is reached."""
    names = {
        "freezethaw": "freezethaw",
        "tpe-hyperband": "Optuna: TPE + Hyperband",
        "tpe-median": "Optuna: TPE + median",
        "random-halving": "Optuna: random + successive halving",
    }
    rows = kept("clock.json")["rows"]
    marks = list(rows[0]["losses"])
    head = ["training", "method", *(f"after {mark} s" for mark in marks), "best rival's loss", "deciding"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        losses = [f"{row['losses'][mark]:.3f} ± {row['errors'][mark]:.3f}" for mark in marks]
        reached = "never" if row["reached"] is None else f"{row['reached']:.0f} s"
        cells = [row["problem"], names[row["method"]], *losses, reached, f"{100 * row['deciding']:.0f} %"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def latency_table() -> str:
    """Seconds of one decision."""
    lines = ["| observed epochs | median | 99th percentile | worst | memory |", "|---" * 5 + "|"]
    for at, found in sorted(kept("latency.json")["decision"].items(), key=lambda item: int(item[0])):
        cells = [f"{found[k]:.2f} s" for k in ("median", "p99", "worst")]
        lines.append(f"| {at} | {' | '.join(cells)} | {found['megabytes']:.0f} MB |")
    return "\n".join(lines) + "\n"


def later_table(every: list[dict[str, Any]]) -> str:
    """Simulations of seeds that were simulated after a choice, and how many searches stand above one half."""
    lines = [
        "| suite | seeds | simulations | version | regret after 50 / 100 / 200 / 300 epochs | above 0.5 at 200, 300 |"
    ]
    lines.append("|---" * 6 + "|")
    plain, without = OURS, f"{OURS}, without plateaus"
    kinds = [(suite, 5, 8, plain) for suite in SUITES[1:]]
    kinds += [(SUITES[0], first, 12, method) for first in (9, 0) for method in (without, plain)]
    for suite, first, last, method in kinds:
        simulations = gather(every, suite, "candidates", "regret")[method]
        simulated = {simulation: regret for simulation, regret in simulations.items() if first <= simulation[1] <= last}
        at = {epochs: np.array(list(at_milestone(simulated, epochs).values())) for epochs in AT[1:]}
        means = " / ".join(f"{values.mean():.2f}" for values in at.values())
        above = ", ".join(str(int((at[epochs] > 0.5).sum())) for epochs in (200, 300))
        lines.append(f"| {NAMES[suite]} | {first} to {last} | {len(at[300])} | {method} | {means} | {above} |")
    return "\n".join(lines) + "\n"


def endurance_table() -> str:
    """Ten thousand decisions in one study: every third line of what was measured."""
    lines = ["| decisions | runs | median | 99th percentile | worst | memory |", "|---" * 6 + "|"]
    for found in kept("endurance.json")["rows"][1::3]:
        cells = [f"{found[k]:.2f} s" for k in ("median", "p99", "worst")]
        lines.append(f"| {found['decisions']} | {found['runs']} | {' | '.join(cells)} | {found['megabytes']:.0f} MB |")
    return "\n".join(lines) + "\n"


def store_table() -> str:
    """Commits per second of 64 processes, the median of the rounds."""
    rows = kept("store.json")["commits"]
    lines = ["| database | writer | commits per second | longest wait | failed |", "|---" * 5 + "|"]
    for database, writer in dict.fromkeys((row["database"], row["writer"]) for row in rows):
        own = [row for row in rows if (row["database"], row["writer"]) == (database, writer)]
        speed, wait = np.median([r["commits_per_second"] for r in own]), max(r["worst_wait"] for r in own)
        failed = sum(len(row["failures"]) for row in own)
        lines.append(f"| {database} | {writer} | {speed:.0f} | {wait:.1f} s | {failed} |")
    return "\n".join(lines) + "\n"


def faults_table() -> str:
    """Workers killed, and what became of the losses."""
    lines = [
        "| what was killed | kills | losses lost | trained again | allowed | decisions replayed |",
        "|---" * 6 + "|",
    ]
    found = kept("faults.json")
    for database in ("sqlite", "postgresql"):
        one = found[f"{database}/kills"]
        again = f"{one['trained_again']} | {one['allowed_again']} | {one['replayed']} of {one['decisions']}"
        lines.append(f"| {one['workers']} workers, {database} | {one['kills']} | {one['lost']} | {again} |")
    found = kept("faults_runtime.json")  # whose auditor ends the benchmark at the first loss that is gone
    names = {"kill_worker": "workers of a real `tune`, SIGKILL", "terminate_worker": "the same, SIGTERM"}
    names |= {"kill_parent": "the process that called `tune`", "kill_parent_postgresql": "the same, on PostgreSQL"}
    for key, name in names.items():
        one = found[key]
        again = f"{one['trained_again']} | {one['allowed_again']} | {one['replayed']} of {one['decisions']}"
        lines.append(f"| {name} | {one['interruptions']} | 0 | {again} |")
    return "\n".join(lines) + "\n"


def beyond_table(every: list[dict[str, Any]]) -> str:
    """What our additions to the paper's method gain, one by one, as far as that was measured."""
    lines = ["| beyond the paper | measured as | without | with |", "|---" * 4 + "|"]
    for suite, queries in kept("forecast.json")["results"].items():
        paper, ours = (queries["later"][m]["log_likelihood"] for m in ("paper", "drift"))
        what = f"drop, drift, run scales | log-likelihood of later losses, {NAMES[suite]}"
        lines.append(f"| {what} | {paper:.2f} | {ours:.2f} |")
    for suite in SUITES:
        simulations = gather(every, suite, "candidates", "regret")
        means, _ = common_means(simulations, [f"{OURS}, without surprises", OURS], 300)
        what = f"surprises: exploration in time | regret after 300 epochs, {NAMES[suite]}"
        lines.append(f"| {what} | {means[0]:.3f} | {means[1]:.3f} |")
    simulations = gather(every, "taskset", "candidates", "regret")
    (without_them, with_them), _ = common_means(simulations, [f"{OURS}, without plateaus", OURS], 200)
    what = "separate units for plateaus | regret after 200 epochs, TaskSet"
    lines.append(f"| {what} | {without_them:.3f} | {with_them:.3f} |")
    ratio = kept("sequential.json")["geometric_mean"]
    lines.append(
        "| sequentially updated samples | distance of forecasts from those of samples from scratch, in units of the "
        f"distance between those | 1 | {ratio:.2f} |"
    )
    return "\n".join(lines) + "\n"


def learn_from_tables(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Regret with related earlier studies, and differences to the search alone with unrelated ones."""
    at = [str(epochs) for epochs in AT if any(str(epochs) in row for row in rows)]
    related = ["| | studies | searches |", "|---|---|---|"]
    related[0] += "".join(f" {epochs} epochs |" for epochs in at)
    related[1] += "---|" * len(at)
    for suite in dict.fromkeys(row["suite"] for row in rows):
        mine = [row for row in rows if row["suite"] == suite and row["kind"] == "related"]
        if mine:
            first = max(mine, key=lambda row: int(row["searches"]))
            related.append(f"| {NAMES[suite]}, alone | | {first['searches']} |")
            related[-1] += "".join(f" {first[epochs]['alone']:.2f} |" for epochs in at)
        for row in sorted(mine, key=lambda row: (row["earlier"], row["method"])):
            related.append(f"| {NAMES[suite]}, {LEARNT[row['method']]} | {row['earlier']} | {row['searches']} |")
            related[-1] += "".join(f" {_with_difference(row[epochs])} |" for epochs in at)
    late = at[-2:]
    unrelated = ["| earlier studies | suite | searches |", "|---|---|---|"]
    unrelated[0] += "".join(f" {epochs} epochs |" for epochs in late) + f" weight, {late[0]} epochs |"
    unrelated[1] += "---|" * (len(late) + 1)
    for kind, name in KINDS.items():
        for row in rows:
            if row["kind"] == kind != "related" and row["method"] == "learn_from":
                unrelated.append(f"| {name} | {NAMES[row['suite']]} | {row['searches']} |")
                gaps = [f"{row[epochs]['difference']:+.3f} ± {row[epochs]['error']:.3f}" for epochs in late]
                unrelated[-1] += "".join(f" {gap} |" for gap in gaps) + f" {100 * row['weight'][late[0]]:.0f} % |"
    return {
        "related": "\n".join(related) + "\n" + source("learn_from.json"),
        "unrelated": "\n".join(unrelated) + "\n",
    }


def _with_difference(found: dict[str, float]) -> str:
    return f"{found['regret']:.2f} ({found['difference']:+.2f} ± {found['error']:.2f})"


def source(*names: str) -> str:
    """The files with the results and the commit of the code; for older files the commit that recorded them."""
    found = []
    for name in names:
        if name in SUMMARIES:
            dates = [group["recorded"].rpartition(" ")[2] for group in kept(name)["groups"] if "recorded" in group]
            found.append(f"`{name}`, recorded until {max(dates)}; the file has the commit of each method")
            continue
        commits = {each["commit"] for each in kept(name).get("groups", [kept(name)]) if "commit" in each}
        if commits:
            found.append(f"`{name}`, of commit {', '.join(sorted(commits))}")
            continue
        others = [f"--grep={title}" for title in FORMAT_ONLY]  # commits that measured nothing
        command = ["git", "log", "-1", "--format=%h of %cs", "--invert-grep", *others, "--", str(RESULTS / name)]
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=RESULTS)  # noqa: S603 - git
        commit = said.stdout.strip()
        found.append(f"`{name}`, commit {commit}")
    return f"\nResults: {'; '.join(found)}.\n"


def picture(found: Regrets) -> Any:
    """Mean regret against epochs, a panel for each suite."""
    from plotly.subplots import make_subplots

    titles = [NAMES[suite] for suite in found]
    figure = make_subplots(cols=len(found), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03)
    scatter = graph_objects().Scatter
    for place, suite in enumerate(found, 1):
        for number, method in enumerate(METHODS):
            means = [found[suite][method][at][0] for at in AT]
            errors = {"type": "data", "array": [found[suite][method][at][1] for at in AT], "thickness": 1, "width": 2}
            line = {"color": COLOURS[number], "width": 3 if number == 0 else 1.8}
            figure.add_trace(
                scatter(x=AT, y=means, error_y=errors, name=METHODS[method], line=line, showlegend=place == 1),
                row=1, col=place,
            )  # fmt: skip
    figure.update_xaxes(title_text="Epochs trained in all", type="log", tickvals=AT, ticktext=[str(at) for at in AT])
    figure.update_yaxes(title_text="Normalised regret", col=1, rangemode="tozero")
    legend = {"orientation": "h", "y": -0.22}
    return figure.update_layout(template="plotly_white", legend=legend, margin={"t": 40, "b": 90, "l": 70, "r": 20})


def fill(page: Path, found: dict[str, str]) -> None:
    """Put tables between their marks."""
    text = page.read_text(encoding="utf-8")
    for mark, table in found.items():
        text = filled(text, mark, table)
    page.write_text(text, encoding="utf-8")


def tables() -> dict[str, str]:
    """All tables of the page, by the name of their mark."""
    every = records.published()
    return {
        "present": present_table(every, records.published(PRESENT)) + source(PRESENT.name),
        "regret": regret_table(regrets()) + source("regret.json"),
        "rivals": rivals_table(every) + source("regret.json"),
        "others": others_table(every) + source("regret.json"),
        "later": later_table(every) + source("regret.json"),
        "forecast": forecast_table() + source("forecast.json"),
        "ftpfn": ftpfn_table() + source("forecast_ftpfn.json"),
        "beyond": beyond_table(every) + source("forecast.json", "regret.json", "sequential.json"),
        "ablation": ablation_table(every) + source("regret.json"),
        "policies": policies_table(every) + source("regret.json"),
        "clock": clock_table() + source("clock.json"),
        "latency": latency_table() + source("latency.json"),
        "endurance": endurance_table() + source("endurance.json"),
        "store": store_table() + source("store.json"),
        "faults": faults_table() + source("faults.json", "faults_runtime.json"),
    }


def main() -> None:
    """Fill in the page, and draw its picture."""
    fill(PAGE, tables())
    fill(GUIDE, learn_from_tables(kept("learn_from.json")["rows"]))
    print(figures.write_png(picture(regrets()), IMAGES / "regret.png", 1100, 440, scale=1.5))


if __name__ == "__main__":
    main()
