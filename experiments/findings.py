"""Fill the tables of docs/findings.md from the studies that are kept.

    python -m experiments.findings             rewrites what lies between the marks in docs/findings.md
    python -m experiments.findings --quick     prints the tables of the small version

What is written by hand around the marks stays.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import forecasts, results
from experiments.methods import METHODS, TITLES
from experiments.problems import PROBLEMS
from experiments.results import Record

PAGE = Path(__file__).parents[1] / "docs" / "findings.md"
NEVER = "never"
PICTURES = {
    "comparisons": {
        "comparison_logistic": "Logistic regression: lowest loss against epochs",
        "comparison_lda": "Online LDA: lowest loss against epochs",
        "comparison_pmf": "Matrix factorisation: lowest loss against epochs",
    },
    "progressions": {
        "progression_3d": "Curves of one study of matrix factorisation, by run, epoch and loss",
        "progression_2d": "The same seen from the side",
    },
}


def of(records: Sequence[Record], problem: str, method: str) -> list[Record]:
    """The studies of one method on one problem."""
    return [r for r in records if (r.problem, r.method) == (problem, method)]


def problems_in(records: Sequence[Record]) -> list[str]:
    """Problems of which something is kept."""
    return [problem for problem in PROBLEMS if any(r.problem == problem for r in records)]


def goal(records: Sequence[Record], problem: str) -> float:
    """The baseline's final loss, the mean over its studies; NaN where there are none."""
    ends = [r.lowest[-1] for r in of(records, problem, "baseline")]
    return float(np.mean(ends)) if ends else float("nan")


def speed(records: Sequence[Record]) -> str:
    """Epochs to reach the baseline's final mean loss, study by study."""
    rows = []
    for problem in problems_in(records):
        wanted = goal(records, problem)
        for method in METHODS:
            found = of(records, problem, method)
            if not found:
                continue
            ends = [r.lowest[-1] for r in found]
            epochs = sorted(r.epochs_to(wanted) for r in found)
            reached = [e for e in epochs if np.isfinite(e)]
            budget = found[0].budget
            ratios = [budget / e for e in reached]
            spread = f"{min(ratios):.1f} to {max(ratios):.1f}" if ratios else ""
            rows.append(
                [
                    PROBLEMS[problem].title if method == "paper" else "",
                    TITLES[method],
                    f"{np.mean(ends):.5g} ± {_error(ends):.2g}",
                    _count(float(np.median(epochs))),
                    f"{len(reached)} of {len(found)}",
                    f"{budget / float(np.median(epochs)):.1f}" if np.isfinite(np.median(epochs)) else "",
                    spread,
                ]
            )
    head = [
        "Problem", "Method", "Final lowest loss", "Epochs to the baseline's final loss (median)",
        "Studies that reach it", "Times fewer epochs (median)", "Spread over studies that reach it",
    ]  # fmt: skip
    return table(head, rows)


def visits(records: Sequence[Record]) -> str:
    """How runs are started, left and taken up again."""
    rows = []
    for problem in problems_in(records):
        for method in ("paper", "default"):
            found = of(records, problem, method)
            if not found:
                continue
            lengths = [np.bincount(r.order)[1:] for r in found]
            revisits = [r.revisits for r in found]
            rows.append(
                [
                    PROBLEMS[problem].title if method == "paper" else "",
                    TITLES[method],
                    f"{np.mean([len(x) for x in lengths]):.0f}",
                    f"{100 * np.mean(np.concatenate(lengths) == 1):.0f} %",
                    f"{np.mean([x.max() for x in lengths]):.0f}",
                    f"{np.mean([x.sum() for x in revisits]):.0f}",
                    f"{100 * np.mean(np.concatenate(revisits) > 0):.0f} %",
                    f"{np.mean([x.max() for x in revisits]):.0f}",
                    f"{100 * np.mean([_late(r) for r in found]):.0f} %",
                ]
            )
    head = [
        "Problem", "Method", "Runs started", "of one epoch only", "Longest run", "Thaws of a run left before",
        "Runs thawed at least once", "Most thaws of one run", "Thaws in the second half of the study",
    ]  # fmt: skip
    return table(head, rows)


def _late(record: Record) -> float:
    """Which share of the thaws happened in the second half."""
    order = record.order
    change = np.flatnonzero(np.diff(order, prepend=0) != 0)
    first = {int(run): int(np.flatnonzero(order == run)[0]) for run in np.unique(order)}
    thaws = [at for at in change if first[int(order[at])] != at]
    return float(np.mean([at >= len(order) / 2 for at in thaws])) if thaws else float("nan")


def time_spent(records: Sequence[Record]) -> str:
    """Where the wall time went."""
    rows = []
    for problem in problems_in(records):
        for method in METHODS:
            found = of(records, problem, method)
            if not found:
                continue
            training = np.array([r.training.sum() for r in found])
            deciding = np.array([r.deciding.sum() for r in found])
            wall = np.array([r.wall for r in found])
            rest = wall - training - deciding
            epochs = np.concatenate([r.training for r in found])
            per_decision = np.concatenate([r.deciding[r.deciding > 0] for r in found])
            rows.append(
                [
                    PROBLEMS[problem].title if method == "paper" else "",
                    TITLES[method],
                    f"{epochs.mean():.2f}",
                    f"{np.median(per_decision):.3f}" if len(per_decision) else "",
                    f"{training.mean():.0f}",
                    f"{deciding.mean():.0f}",
                    f"{rest.mean():.0f}",
                    f"{100 * deciding.sum() / wall.sum():.1f} %",
                ]
            )
    head = [
        "Problem", "Method", "Seconds of an epoch", "of a decision (median)", "Training (s)", "Deciding (s)",
        "Rest (s): store, checkpoints", "Share of deciding",
    ]  # fmt: skip
    return table(head, rows)


def ends(kept: dict[str, Any]) -> str:
    """How well the last losses of runs are forecast from their first epochs."""
    rows = []
    for problem, found in kept.items():
        for place, (seen, entry) in enumerate(found["seen"].items()):
            rows.append(
                [
                    f"{PROBLEMS[problem].title} ({found['runs']} runs)" if place == 0 else "",
                    seen,
                    f"{entry['as it is']:.3g}",
                    f"{entry['paper']:.3g}",
                    f"{entry['drift']:.3g}",
                    f"{100 * entry['paper, in the 90 % interval']:.0f} %",
                    f"{100 * entry['drift, in the 90 % interval']:.0f} %",
                ]
            )
    head = [
        "Problem", "Epochs seen", "Error if the loss stayed", "of the paper's model", "of our default model",
        "In the paper's 90 % interval", "In our 90 % interval",
    ]  # fmt: skip
    return table(head, rows)


def pictures(folder: Path) -> dict[str, str]:
    """The pictures that were drawn, by the name of their mark."""
    found = {}
    for name, titles in PICTURES.items():
        drawn = [
            f"![{title}](images/{file}.png)" for file, title in titles.items() if (folder / f"{file}.png").exists()
        ]
        found[name] = "\n".join(drawn) or "Not drawn yet."
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as Markdown has it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parts(folder: Path) -> dict[str, str]:
    """Every table, by the name of its mark; those for which nothing is kept are left out."""
    records = results.everything(folder)
    found = {}
    makers: dict[str, Callable[[Sequence[Record]], str]] = {"speed": speed, "visits": visits, "time": time_spent}
    if records:
        found = {name: make(records) for name, make in makers.items()}
    kept = folder / forecasts.FILE
    if kept.exists():
        found["ends"] = ends(json.loads(kept.read_text()))
    return found


def filled(text: str, found: dict[str, str]) -> str:
    """The page with its tables put between `<!-- name -->` and `<!-- /name -->`."""
    for name, content in found.items():
        found_marks = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
        if found_marks is None:
            raise ValueError(f"docs/findings.md has no mark <!-- {name} -->")
        text = f"{text[: found_marks.start(1)]}{content}\n{text[found_marks.end(1) :]}"
    return text


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=min(1, len(values) - 1)) / np.sqrt(len(values)))


def _count(epochs: float) -> str:
    return f"{epochs:.0f}" if np.isfinite(epochs) else NEVER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="print the tables of the small version")
    parser.add_argument("--results", type=Path, default=None)
    args = parser.parse_args()
    folder = args.results or (results.QUICK_RESULTS if args.quick else results.RESULTS)
    found = parts(folder)
    if not found:
        sys.exit(f"no studies are kept in {folder}: run python -m experiments.compare first")
    if args.quick:
        for name, content in found.items():
            print(f"{name}\n{content}\n")
        return
    found |= pictures(PAGE.parent / "images")
    PAGE.write_text(filled(PAGE.read_text(), found))
    print(f"{PAGE.name}: {', '.join(found)}")


if __name__ == "__main__":
    main()
