"""Fill in the tables of docs/findings.md from the results.

python -m experiments.findings             rewrite the tables between the marks in docs/findings.md
python -m experiments.findings --quick     print the tables of the small version
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu, ttest_ind

from experiments import results
from experiments.methods import METHODS, TITLES
from experiments.problems import PROBLEMS
from experiments.results import StudySummary, Summary

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


def of(records: Sequence[StudySummary], problem: str, method: str) -> list[StudySummary]:
    """The studies of one method on one problem."""
    return [r for r in records if (r.problem, r.method) == (problem, method)]


def problems_in(records: Sequence[StudySummary]) -> list[str]:
    """Problems with results."""
    return [problem for problem in PROBLEMS if any(r.problem == problem for r in records)]


def goal(records: Sequence[StudySummary], problem: str) -> float:
    """The baseline's final loss, the mean over its studies; NaN if there are none."""
    ends = [r.lowest[-1] for r in of(records, problem, "baseline")]
    return float(np.mean(ends)) if ends else float("nan")


def speed(records: Sequence[StudySummary]) -> str:
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


def medians(records: Sequence[StudySummary]) -> str:
    """Median, best and worst final loss; a test against the baseline; epochs to the best study of the baseline."""
    rows = []
    for problem in problems_in(records):
        baseline = [r.lowest[-1] for r in of(records, problem, "baseline")]
        for method in METHODS:
            found = of(records, problem, method)
            if not found:
                continue
            ends = [r.lowest[-1] for r in found]
            compared = method != "baseline" and min(len(ends), len(baseline)) > 1
            best = float(np.median([r.epochs_to(min(baseline)) for r in found])) if baseline else np.inf
            rows.append(
                [
                    PROBLEMS[problem].title if method == "paper" else "",
                    TITLES[method],
                    f"{np.median(ends):.5g}",
                    f"{min(ends):.5g} to {max(ends):.5g}",
                    f"{ttest_ind(ends, baseline, equal_var=False).pvalue:.2g}" if compared else "",
                    f"{mannwhitneyu(ends, baseline).pvalue:.2g}" if compared else "",
                    f"{found[0].budget / best:.1f}" if np.isfinite(best) else NEVER,
                ]
            )
    head = [
        "Problem", "Method", "Median final loss", "Best to worst study", "p against the baseline (Welch)",
        "p (Mann-Whitney)", "Times fewer epochs to the best baseline study (median)",
    ]  # fmt: skip
    return table(head, rows)


def visits(records: Sequence[StudySummary]) -> str:
    """How often runs are started and thawed."""
    rows = []
    for problem in problems_in(records):
        for method in ("paper", "default"):
            found = of(records, problem, method)
            if not found:
                continue
            runs = sum(r.runs for r in found)
            late = [np.nan if r.late_thaws is None else r.late_thaws for r in found]
            rows.append(
                [
                    PROBLEMS[problem].title if method == "paper" else "",
                    TITLES[method],
                    f"{runs / len(found):.0f}",
                    f"{100 * sum(r.one_epoch_runs for r in found) / runs:.0f} %",
                    f"{np.mean([r.longest for r in found]):.0f}",
                    f"{np.mean([r.thaws for r in found]):.0f}",
                    f"{100 * sum(r.thawed_runs for r in found) / runs:.0f} %",
                    f"{np.mean([r.most_thaws for r in found]):.0f}",
                    f"{100 * np.mean(late):.0f} %",
                ]
            )
    head = [
        "Problem", "Method", "Runs started", "of one epoch only", "Longest run", "Thaws",
        "Runs thawed at least once", "Most thaws of one run", "Thaws in the second half of the study",
    ]  # fmt: skip
    return table(head, rows)


def time_spent(records: Sequence[StudySummary]) -> str:
    """Where the wall time was spent."""
    rows = []
    for problem in problems_in(records):
        for method in METHODS:
            found = of(records, problem, method)
            if not found:
                continue
            training = np.array([r.training for r in found])
            deciding = np.array([r.deciding for r in found])
            wall = np.array([r.wall for r in found])
            rest = wall - training - deciding
            decisions = [r.decision for r in found if r.decision is not None]
            rows.append(
                [
                    PROBLEMS[problem].title if method == "paper" else "",
                    TITLES[method],
                    f"{training.sum() / sum(r.epochs for r in found):.2f}",
                    f"{np.median(decisions):.3f}" if decisions else "",
                    f"{training.mean():.0f}",
                    f"{deciding.mean():.0f}",
                    f"{rest.mean():.0f}",
                    f"{100 * deciding.sum() / wall.sum():.1f} %",
                ]
            )
    head = [
        "Problem", "Method", "Seconds of an epoch", "of a decision (median of the studies' medians)",
        "Training (s)", "Deciding (s)",
        "Rest (s): store, checkpoints", "Share of deciding",
    ]  # fmt: skip
    return table(head, rows)


def ends(kept: dict[str, Any]) -> str:
    """Errors of forecasts of the last loss from the first epochs."""
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
    """The existing images, by the name of their mark."""
    found = {}
    for name, titles in PICTURES.items():
        drawn = [
            f"![{title}](images/{file}.png)" for file, title in titles.items() if (folder / f"{file}.png").exists()
        ]
        found[name] = "\n".join(drawn) or "Not drawn yet."
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parts(summary: Summary) -> dict[str, str]:
    """All tables that have results, by the name of their mark."""
    makers: dict[str, Callable[[Sequence[StudySummary]], str]] = {
        "speed": speed,
        "medians": medians,
        "visits": visits,
        "time": time_spent,
    }
    found = {name: make(summary.studies) for name, make in makers.items()} if summary.studies else {}
    return found | ({"ends": ends(summary.forecasts)} if summary.forecasts else {})


def filled(text: str, found: dict[str, str]) -> str:
    """The page with its tables inserted between `<!-- name -->` and `<!-- /name -->`."""
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
    parser.add_argument("--results", type=Path, default=None, help="folder of raw records; by default the summary")
    args = parser.parse_args()
    folder = args.results or (results.QUICK_RESULTS if args.quick else None)
    found = parts(results.published() if folder is None else results.summary_of(folder))
    if not found:
        sys.exit(f"there are no results in {folder or results.SUMMARY}: run python -m experiments.compare first")
    if args.quick:
        for name, content in found.items():
            print(f"{name}\n{content}\n")
        return
    found |= pictures(PAGE.parent / "images")
    PAGE.write_text(filled(PAGE.read_text(), found))
    print(f"{PAGE.name}: {', '.join(found)}")


if __name__ == "__main__":
    main()
