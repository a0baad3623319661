"""Fill in docs/decision.md and draw the README's picture from a real study: `python -m docs.one_decision`.

The study tunes the network of examples/digits.py, one epoch at a time, up to the first decision that thaws a run which
was frozen while others were trained.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np

import freezethaw as ft
from freezethaw import figures
from freezethaw.study import session_of

PAGE = Path(__file__).parent / "decision.md"
IMAGES = Path(__file__).parent / "images"
DIGITS = Path(__file__).parents[1] / "examples" / "digits.py"
EARLIEST, PATIENCE = 45, 3  # decisions that went before, and that a run was frozen for
SHOWN = 6  # of the basket


def search() -> tuple[ft.Study, ft.Decision]:
    """The study at that decision, which is not executed yet."""
    demo = runpy.run_path(str(DIGITS))
    study = ft.Study(demo["SPACE"], max_epochs=demo["MAX_EPOCHS"], bounds=(0, None), seed=0)
    networks: dict[int, object] = {}
    last: dict[int, int] = {}
    while True:
        decision = study.ask()
        run, number = decision.run, decision.number
        if number > EARLIEST and decision.kind == "thaw" and number - last[run] > PATIENCE:
            return study, decision
        if run not in networks:
            networks[run] = demo["Network"](decision.config, session_of(study).training_seed(run))
        losses = []
        for _ in range(decision.epochs):
            with np.errstate(all="ignore"):
                networks[run].train_one_epoch()
                losses.append(networks[run].loss())
        study.tell(decision, losses)
        last[run] = number


def tables(study: ft.Study, decision: ft.Decision) -> dict[str, str]:
    """What stands between the marks of the page."""
    runs, best, number = study.runs, study.recommended, decision.number
    state = f"{len(runs)} runs, {sum(run.epoch for run in runs)} epochs. The lowest loss is {_lowest(runs):.4f}; the "
    state += f"best with the noise removed is that of run {best.run} at epoch {best.epoch}: {best.expected:.4f}.\n\n"
    state += "| run | epochs | last losses | forecast of epoch 30 | 90 % interval |\n|---|---|---|---|---|\n"
    for run in sorted(runs, key=lambda r: min(r.losses))[:5]:
        end = study.forecast(run.number)
        low, median, high = (float(q) for q in end.quantile([0.05, 0.5, 0.95])[:, 0])
        tail = ", ".join(f"{loss:.3f}" for loss in run.losses[-3:])
        state += f"| {run.number} | {run.epoch} | {tail} | {median:.3f} | {low:.3f} to {high:.3f} |\n"
    found = study.explain(number).basket
    basket = "| candidate | so far | up to epoch | chance to beat the best | score |\n|---|---|---|---|---|\n"
    for entry in found[:SHOWN]:
        name = "a new configuration" if entry.run is None else f"run {entry.run}"
        chance = f"{100 * entry.chance:.0f} %"
        basket += f"| {name} | {entry.epoch} | {entry.to_epoch} | {chance} | {entry.score:.5f} |\n"
    basket += (
        f"\n... and {len(found) - SHOWN} more. The reason that is stored with the decision:\n\n> {decision.reason}\n"
    )
    return {"state": state, "basket": basket, "number": f"This is decision {number}.\n"}


def filled(page: str, mark: str, words: str) -> str:
    """The page with other words between its marks."""
    between = re.compile(f"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    return between.sub(lambda found: found[1] + words + found[2], page)


def _lowest(runs: tuple[ft.Run, ...]) -> float:
    return min(min(run.losses) for run in runs)


def main() -> None:
    """Fill in the page, and draw the picture."""
    study, decision = search()
    text = PAGE.read_text(encoding="utf-8")
    for mark, words in tables(study, decision).items():
        text = filled(text, mark, words)
    PAGE.write_text(text, encoding="utf-8")
    picture = figures.curves(study, shown=4)
    picture.update_layout(title_text=f"Frozen runs of a study, and their forecasts: run {decision.run} is thawed next")
    figures.write_png(picture, IMAGES / "study_curves.png", 1000, 560, scale=2)
    print(decision.reason)


if __name__ == "__main__":
    main()
