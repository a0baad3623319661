"""The figures of the paper's section 6, from the results; nothing is trained.

    python -m experiments.draw                                 all figures, into docs/images
    python -m experiments.draw comparison_pmf progression_3d   some of them
    python -m experiments.draw --html build/figures            as interactive pages
    python -m experiments.draw --quick                         from the small version, into build/paper-quick

Figures 1 and 2 are drawn by `python -m docs.draw`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments import results
from experiments.methods import TITLES
from experiments.problems import PROBLEMS
from experiments.results import Progression, Summary
from freezethaw import figures

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def comparison(summary: Summary, problem: str) -> Figure | None:
    """Lowest loss against epochs, all methods; None if there are no results."""
    found = {}
    for method, title in TITLES.items():
        curves = [r.lowest for r in summary.studies if (r.problem, r.method) == (problem, method)]
        if curves:
            shortest = min(len(curve) for curve in curves)
            found[title] = np.array([curve[:shortest] for curve in curves])
    if not found:
        return None
    loss = PROBLEMS[problem].loss
    return figures.lowest_losses(found, PROBLEMS[problem].title, loss[0].upper() + loss[1:])


def progression(summary: Summary, depth: bool, method: str = "paper") -> Figure | None:
    """All learning curves of one study of matrix factorisation, coloured by the time of training."""
    found = [r for r in summary.progressions if (r.problem, r.method, r.seed) == ("pmf", method, 0)]
    if not found:
        return None
    title = f"Matrix factorisation, {TITLES[method][0].lower()}{TITLES[method][1:]}"
    losses = [np.nan if loss is None else loss for loss in found[0].losses]
    highest = _typical_first_loss(found[0])
    return figures.progression(found[0].order, losses, depth, title, "Root mean squared error", highest=highest)


def _typical_first_loss(study: Progression) -> float:
    """The 80 % quantile of first losses: higher ones are not drawn."""
    first: dict[int, float] = {}
    for run, loss in zip(study.order, study.losses, strict=True):
        first.setdefault(run, np.nan if loss is None else loss)
    return float(np.nanquantile(list(first.values()), 0.8))


FIGURES: Mapping[str, Callable[[Summary], Figure | None]] = {
    **{f"comparison_{name}": partial(comparison, problem=name) for name in PROBLEMS},
    "progression_3d": partial(progression, depth=True),
    "progression_2d": partial(progression, depth=False),
    "progression_default_2d": partial(progression, depth=False, method="default"),
}


def draw(names: Sequence[str], summary: Summary, folder: Path, html: bool = False, prefix: str = "") -> list[Path]:
    """Write these figures, if there are results for them."""
    written = []
    for name in names:
        figure = FIGURES[name](summary)
        if figure is None:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if html:
            file = folder / f"{prefix}{name}.html"
            figure.write_html(file)
        else:
            file = figures.write_png(figure, folder / f"{prefix}{name}.png", 900, 560, scale=2)
        written.append(file)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", nargs="*", help=f"of {', '.join(FIGURES)}; by default all")
    parser.add_argument("--results", type=Path, default=None, help="folder of raw records; by default the summary")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--html", type=Path, default=None, metavar="FOLDER", help="write pages, not images")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    unknown = [name for name in args.figure if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    folder = args.results or (results.QUICK_RESULTS if args.quick else None)
    summary = results.published() if folder is None else results.summary_of(folder)
    if not summary.studies:
        sys.exit(f"there are no results in {folder or results.SUMMARY}: run python -m experiments.compare first")
    out = args.html or args.out or (results.QUICK_RESULTS if args.quick else IMAGES)
    for path in draw(args.figure or list(FIGURES), summary, out, html=args.html is not None):
        print(f"{path} ({path.stat().st_size // 1024} kB)")


if __name__ == "__main__":
    main()
