"""How studies went: the best loss so far against what was spent, of one study or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from freezethaw.figures.style import COLOURS, Array, colour, empty_figure, label, note, thinned
from freezethaw.records import Taken
from freezethaw.study import Study

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Spent = Literal["epochs", "hours", "cost"]
NO_LOSS, NO_SECONDS = "no loss yet", "no seconds were told"
TITLES: Mapping[Spent, str] = {
    "epochs": "Epochs trained in all",
    "hours": "Hours of training, all workers together",
    "cost": "Hours of training with the prices of starting, saving and loading",
}
DASHES = ("solid", "dash", "dot", "dashdot")  # the next kind of line when the colours are used up


def sign_of(study: Study) -> float:
    """Losses times this are minimised."""
    return -1.0 if study.direction == "maximize" else 1.0


@dataclass(frozen=True)
class Course:
    """One study's losses in the order in which they were recorded; as told, times the sign."""

    spent: Array  # after each
    losses: Array
    lowest: Array  # so far
    names: tuple[str, ...]  # of the improvements
    improvements: NDArray[np.intp]  # their places

    @classmethod
    def of(cls, study: Study, against: Spent) -> Course | str:
        """The course, or why there is none."""
        runs, sign, history = study.runs, sign_of(study), study.history()
        order = [(run, epoch) for run, epoch in history.epochs if not runs[run - 1].added]
        if not order:
            return NO_LOSS
        losses = np.array([sign * runs[run - 1].losses[epoch - 1] for run, epoch in order])
        spent = np.arange(1.0, len(order) + 1.0)
        if against != "epochs":
            spent = np.cumsum(np.nan_to_num([runs[run - 1].seconds[epoch - 1] for run, epoch in order])) / 3600
            if against == "cost":
                spent = spent + _prices(study, history.decisions, len(order)) / 3600
            if not spent[-1] > 0:
                return NO_SECONDS
        lowest = np.minimum.accumulate(losses)
        at = np.flatnonzero(np.diff(lowest, prepend=np.inf) < 0)
        return cls(spent, losses, lowest, tuple(f"run {order[i][0]}, epoch {order[i][1]}" for i in at), at)

    def stairs(self) -> tuple[list[float], list[float]]:
        """The corners of the best loss so far."""
        at = self.improvements
        return [*self.spent[at], self.spent[-1]], [*self.lowest[at], self.lowest[-1]]

    def range(self) -> tuple[float, float]:
        """From the best loss to one that nine in ten are better than: first losses may leave the view."""
        seen = self.losses[thinned(len(self.losses), 1500)]
        return float(self.lowest[-1]), float(np.quantile(seen, 0.9))


def best_loss(study: Study, against: Spent = "epochs") -> Figure:
    """Draw the best loss so far against epochs, hours of training, or hours and the prices of changing between runs."""
    figure = empty_figure("Best loss so far", "each dot is an improvement", TITLES[against], "Best loss")
    course, sign = Course.of(study, against), sign_of(study)
    if isinstance(course, str):
        return note(figure, course)
    x, y = course.stairs()
    at = course.improvements
    figure.add_scatter(
        x=x, y=sign * np.array(y), mode="lines", name="best loss", showlegend=False, hoverinfo="skip",
        line={"color": COLOURS[0], "width": 2.5, "shape": "hv"},
    )  # fmt: skip
    figure.add_scatter(
        x=course.spent[at], y=sign * course.lowest[at], mode="markers", marker={"color": COLOURS[0], "size": 7},
        text=course.names, name="improvement", showlegend=False, hovertemplate="%{text}: %{y:.5g}<extra></extra>",
    )  # fmt: skip
    return _limited(figure, [sign * edge for edge in course.range()])


def comparison(studies: Mapping[str, Study], against: Spent = "epochs") -> Figure:
    """Draw the best loss so far of several studies, by name, over each other."""
    figure = empty_figure("Best loss so far", "a line for each study", TITLES[against], "Best loss")
    edges, why = list[float](), NO_LOSS
    for place, (name, study) in enumerate(studies.items()):
        course, sign = Course.of(study, against), sign_of(study)
        if isinstance(course, str):
            why = course
            continue
        x, y = course.stairs()
        kind = DASHES[place // len(COLOURS) % len(DASHES)]
        figure.add_scatter(
            x=x, y=sign * np.array(y), mode="lines", name=label(name), showlegend=True,
            line={"color": colour(place), "width": 2.5, "shape": "hv", "dash": kind},
            hovertemplate=f"{label(name)}, %{{x:.4g}} {label(against)}: %{{y:.5g}}<extra></extra>",
        )  # fmt: skip
        edges += [sign * edge for edge in course.range()]
    return _limited(figure, edges) if edges else note(figure, why)


def _limited(figure: Figure, edges: Sequence[float]) -> Figure:
    low, high = min(edges), max(edges)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return figure.update_yaxes(range=[low - margin, high + margin]).update_xaxes(rangemode="tozero")


def goes_on(decisions: Sequence[Taken]) -> set[int]:
    """Numbers of decisions that went on with a run right where the one before had ended it: no freeze in between."""
    last: dict[int, int | None] = {}
    found = set()
    for taken in decisions:
        run = taken.decision.run
        if run in last and last[run] == taken.began:
            found.add(taken.decision.number)
        last[run] = taken.ended
    return found


def _prices(study: Study, decisions: Sequence[Taken], count: int) -> Array:
    """(count,) seconds spent on changing between runs before each epoch was recorded."""
    prices, on = study.prices, goes_on(decisions)
    spent = np.zeros(count + 1)
    for taken in decisions:
        if taken.decision.number not in on:
            load = prices.load if taken.decision.kind == "thaw" else 0.0
            spent[min(taken.began, count)] += prices.start + prices.save + load
    return np.cumsum(spent)[:count]
