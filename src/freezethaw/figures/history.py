"""Figures of the history of a study: best loss against cost, decisions, and the order of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from freezethaw.errors import StudyError
from freezethaw.figures.model import progression
from freezethaw.figures.style import COLOURS, INK, Array, colour, empty_figure, faded, label, note, of_study, thinned
from freezethaw.plain import describe, duration, percent, title
from freezethaw.records import BasketEntry, DecisionRecord, Explanation, History, Prices
from freezethaw.study import Study, StudyReader, read

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Spent = Literal["epochs", "hours", "cost"]
NO_SECONDS = "no training times are recorded"
TITLES: Mapping[Spent, str] = {
    "epochs": "Epochs trained, all runs",
    "hours": "Hours of training, all workers",
    "cost": "Hours of training, starting, saving and loading",
}
DASHES = ("solid", "dash", "dot", "dashdot")  # line styles, once all colours are used

STARTED, THAWED, CONTINUED = COLOURS[0], COLOURS[1], COLOURS[4]
STARTING = "starting and loading"
MOST_ENTRIES = 14  # of a basket that is drawn
MAX_POINTS = 8000  # of the three-dimensional figure


def no_loss(study: StudyReader) -> str:
    """What is drawn before the first loss."""
    return f"no {study.metric} yet"


@dataclass(frozen=True)
class LossHistory:
    """The losses of a study in the order of recording, with the sign that makes them minimised."""

    cost: Array  # cumulative, after each loss
    losses: Array
    lowest: Array  # so far
    names: tuple[str, ...]  # run and epoch of each improvement
    improvements: NDArray[np.intp]  # indices of the losses that are a new minimum

    @classmethod
    def of(cls, study: StudyReader, against: Spent) -> LossHistory | str:
        """The loss history, or a text that says why there is none."""
        runs, sign, history = study.runs, study.sign, study.history
        order = [(run, epoch) for _, run, epoch in history.epochs if not runs[run - 1].added]
        if not order:
            return no_loss(study)
        losses = np.array([sign * runs[run - 1].losses[epoch - 1] for run, epoch in order])
        cost = np.arange(1.0, len(order) + 1.0)
        if against != "epochs":
            cost = np.cumsum(np.nan_to_num([runs[run - 1].seconds[epoch - 1] for run, epoch in order])) / 3600
            if against == "cost":
                cost = cost + _switching_seconds(study, len(order)) / 3600
            if not cost[-1] > 0:
                return NO_SECONDS
        lowest = np.minimum.accumulate(losses)
        at = np.flatnonzero(np.diff(lowest, prepend=np.inf) < 0)
        return cls(cost, losses, lowest, tuple(f"run {order[i][0]}, epoch {order[i][1]}" for i in at), at)

    def steps(self) -> tuple[list[float], list[float]]:
        """Corners of the step function of the best loss."""
        at = self.improvements
        return [*self.cost[at], self.cost[-1]], [*self.lowest[at], self.lowest[-1]]

    def range(self) -> tuple[float, float]:
        """Limits of the axis: the best loss and the 90 % quantile, so that a few first losses may be outside."""
        seen = self.losses[thinned(len(self.losses), 1500)]
        return float(self.lowest[-1]), float(np.quantile(seen, 0.9))


@of_study
def best_loss(study: StudyReader, against: Spent = "epochs") -> Figure:
    """Draw the best loss against epochs, hours of training, or hours including the cost of switching runs."""
    best = f"Best {study.metric}"
    figure = empty_figure(f"{best} so far", "dots: improvements", TITLES[against], best)
    losses, sign = LossHistory.of(study, against), study.sign
    if isinstance(losses, str):
        return note(figure, losses)
    x, y = losses.steps()
    at = losses.improvements
    figure.add_scatter(
        x=x, y=sign * np.array(y), mode="lines", name=best, showlegend=False, hoverinfo="skip",
        line={"color": COLOURS[0], "width": 2.5, "shape": "hv"},
    )  # fmt: skip
    figure.add_scatter(
        x=losses.cost[at], y=sign * losses.lowest[at], mode="markers", marker={"color": COLOURS[0], "size": 7},
        text=losses.names, name="improvement", showlegend=False, hovertemplate="%{text}: %{y:.5g}<extra></extra>",
    )  # fmt: skip
    return _limited(figure, [sign * edge for edge in losses.range()])


def comparison(studies: Mapping[str, Study | StudyReader], against: Spent = "epochs") -> Figure:
    """Draw the best loss of several studies, given by name, in one figure."""
    readers = {name: read(given) for name, given in studies.items()}
    best = " / ".join(dict.fromkeys(f"Best {study.metric}" for study in readers.values())) or "Best loss"
    figure = empty_figure(f"{best} so far", "one line per study", TITLES[against], best)
    edges, why = list[float](), "no loss yet"
    for index, (name, study) in enumerate(readers.items()):
        losses, sign = LossHistory.of(study, against), study.sign
        if isinstance(losses, str):
            why = losses
            continue
        x, y = losses.steps()
        kind = DASHES[index // len(COLOURS) % len(DASHES)]
        figure.add_scatter(
            x=x, y=sign * np.array(y), mode="lines", name=label(name), showlegend=True,
            line={"color": colour(index), "width": 2.5, "shape": "hv", "dash": kind},
            hovertemplate=f"{label(name)}, %{{x:.4g}} {label(against)}: %{{y:.5g}}<extra></extra>",
        )  # fmt: skip
        edges += [sign * edge for edge in losses.range()]
    return _limited(figure, edges) if edges else note(figure, why)


def _limited(figure: Figure, edges: Sequence[float]) -> Figure:
    low, high = min(edges), max(edges)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return figure.update_yaxes(range=[low - margin, high + margin]).update_xaxes(rangemode="tozero")


def continuations(history: History) -> set[int]:
    """Numbers of the decisions that continued a run directly after the previous decision: it was not frozen."""
    last: dict[int, int | None] = {}
    found = set()
    for record in history.decisions:
        run, began = record.decision.run, history.epochs_at(record.committed)
        if run in last and last[run] == began:
            found.add(record.decision.number)
        last[run] = None if record.closed is None else history.epochs_at(record.closed)
    return found


def _switching_seconds(study: StudyReader, count: int) -> Array:
    """(count,) cumulative seconds of starting, saving and loading before each epoch was recorded."""
    history, prices = study.history, study.definition.prices or Prices()
    continued, seconds = continuations(history), np.zeros(count + 1)
    for record in history.decisions:
        if record.decision.number not in continued:
            load = prices.load if record.decision.kind == "thaw" else 0.0
            began = history.epochs_at(record.committed)
            seconds[min(began, count)] += prices.start + prices.save + load
    return np.cumsum(seconds)[:count]


@of_study
def basket(study: StudyReader, number: int | None = None) -> Figure:
    """Draw the basket of a decision, likeliest first; by default of the last decision that has one."""
    figure = empty_figure("Basket of the last decision", "", "Probability to beat the best", "")
    found = explanation(study, number)
    if found is None:
        return note(figure, "no decision has a basket yet")
    decision, chosen = found.decision, found.basket[0]
    heading = f"Basket of decision {decision.number}"
    entropy = study.definition.policy == "entropy_search"
    chance = "P_min among these candidates" if entropy else "Probability to beat the best"
    figure.update_layout(
        meta={"title": heading, "subtitle": "orange: the highest score, which was chosen"},
        title={"text": f'{heading}<br><span style="font-size:13px">{label(decision.reason, 140)}</span>'},
    )
    likely = sorted((entry for entry in found.basket[1:]), key=lambda entry: -_chance(entry))[: MOST_ENTRIES - 1]
    entries = sorted([chosen, *likely], key=_chance)
    names = [_entry_name(entry, place, len(entries)) for place, entry in enumerate(entries)]
    paints = [COLOURS[1] if entry is chosen else COLOURS[0] for entry in entries]
    texts = [f"{label(describe(entry.config), 200)}<br>score {entry.score:.4g}" for entry in entries]
    chances = [_chance(entry) for entry in entries]
    figure.add_bar(
        x=chances, y=names, orientation="h", marker={"color": paints}, text=[percent(c) for c in chances],
        textposition="outside", cliponaxis=False, customdata=texts, showlegend=False,
        hovertemplate="%{y}: %{text}<br>%{customdata}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(tickformat=".0%", range=[0, 1.2 * max([*chances, 0.01])], title={"text": chance})
    return figure.update_yaxes(type="category", showgrid=False)


def _chance(entry: BasketEntry) -> float:
    return entry.chance if np.isfinite(entry.chance) else 0.0


def explanation(study: StudyReader, number: int | None = None) -> Explanation | None:
    """The explanation of a decision; by default of the last one with several candidates."""
    if number is not None:
        return study.explain(number)
    last = len(study.history.decisions)
    for candidate in range(last, max(last - 50, 0), -1):
        try:
            found = study.explain(candidate)
        except StudyError:
            continue
        if len(found.basket) > 1:
            return found
    return None


def _entry_name(entry: BasketEntry, place: int, count: int) -> str:
    """A unique name: plotly stacks bars of the same name."""
    if entry.run is not None:
        return f"run {entry.run}, epoch {entry.epoch} to {entry.to_epoch}"
    return f"new run ({count - place})"


@of_study
def timeline(study: StudyReader, most: int = 400) -> Figure:
    """Draw the last decisions as bars, one row per worker."""
    what = "one row per worker; a bar is a decision, labelled with its run"
    figure = empty_figure("Starts, freezes and thaws", what, "Epochs recorded in the study", "")
    history = study.history
    decisions = history.decisions
    if not decisions:
        return note(figure, "no decision yet")
    continued, now = continuations(history), len(history.epochs)
    rows = _lanes(history)
    shown = decisions[-most:]
    kinds = {"started": STARTED, "thawed": THAWED, "continued without freezing": CONTINUED}
    for name, paint in kinds.items():
        part = [d for d in shown if name == _kind(d, continued)]
        starts = [history.epochs_at(d.committed) for d in part]
        ends = [
            max(now if d.closed is None else history.epochs_at(d.closed), s + 0.4)
            for d, s in zip(part, starts, strict=True)
        ]
        texts = [f"decision {d.decision.number}: {label(d.decision.reason, 160)}" for d in part]
        figure.add_bar(
            y=[f"worker {rows[d.decision.number] + 1}" for d in part], base=starts,
            x=[end - start for start, end in zip(starts, ends, strict=True)], orientation="h", name=name,
            marker={"color": paint, "line": {"color": "white", "width": 1}}, customdata=texts,
            text=[str(d.decision.run) for d in part] if len(shown) <= 80 else None, textposition="inside",
            insidetextanchor="middle", textangle=0, hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    bad = [d for d in shown if d.outcome in ("diverged", "failed", "out_of_memory")]
    figure.add_scatter(
        x=[history.epochs_at(d.closed or 0) for d in bad],
        y=[f"worker {rows[d.decision.number] + 1}" for d in bad], mode="markers",
        marker={"symbol": "x", "size": 9, "color": INK}, name="diverged or failed", showlegend=bool(bad),
        text=[f"run {d.decision.run}: {d.outcome.replace('_', ' ')}" for d in bad],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    count = max(rows[d.decision.number] for d in shown) + 1
    names = [f"worker {row + 1}" for row in range(count)][::-1]
    figure.update_layout(barmode="overlay", bargap=0.3)
    space = max(3 - count, 0) / 2  # keeps the bar of a single worker thin
    limits = [-0.5 - space, count - 0.5 + space]
    return figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=names, showgrid=False, range=limits
    )


def _kind(record: DecisionRecord, continued: set[int]) -> str:
    if record.decision.number in continued:
        return "continued without freezing"
    return "started" if record.decision.kind == "start" else "thawed"


def _lanes(history: History) -> dict[int, int]:
    """The row of each decision: concurrent decisions get different rows, a continued run keeps its row."""
    free_from: list[float] = []
    of_run: dict[int, int] = {}
    rows = {}
    for record in history.decisions:
        run, began = record.decision.run, history.epochs_at(record.committed)
        end = np.inf if record.closed is None else max(history.epochs_at(record.closed), began)
        free = [row for row, since in enumerate(free_from) if since <= began]
        row = of_run[run] if of_run.get(run) in free else free[0] if free else len(free_from)
        if row == len(free_from):
            free_from.append(0.0)
        free_from[row], of_run[run], rows[record.decision.number] = end, row, row
    return rows


@of_study
def time_spent(study: StudyReader) -> Figure:
    """Draw the time that training, starting and loading, deciding and saving took, over the epochs of the study.

    Starting and loading are part of the first epoch of a start or thaw: what it took beyond the run's other epochs.
    """
    figure = empty_figure("Where the time went", "", TITLES["epochs"], "Hours, all workers")
    history, runs = study.history, study.runs
    order = [(run, epoch) for _, run, epoch in history.epochs if not runs[run - 1].added]
    training = np.nan_to_num([runs[run - 1].seconds[epoch - 1] for run, epoch in order])
    extra = _starting_seconds(study)
    starting = np.array([extra.get(place, 0.0) for place in order])
    spent = {"training": training - starting, STARTING: starting}
    spent |= {name: np.zeros(len(order)) for name in ("deciding", "saving")}
    for record in history.decisions if order else ():
        at = min(history.epochs_at(record.committed), len(order) - 1)
        spent["deciding"][at] += np.nan_to_num(record.seconds)
        spent["saving"][at] += np.nan_to_num(record.saving)
    totals = {name: float(seconds.sum()) for name, seconds in spent.items()}
    everything = sum(totals.values())
    if not everything > 0:
        return note(figure, NO_SECONDS)
    what = ", ".join(f"{name} {duration(s)} ({100 * s / everything:.0f} %)" for name, s in totals.items() if s > 0)
    figure.update_layout(meta={"title": "Where the time went", "subtitle": what})
    ends = thinned(len(order), 400)
    unit, name = (3600, "Hours") if everything > 7200 else (60, "Minutes") if everything > 120 else (1, "Seconds")
    for (what, seconds), paint in zip(spent.items(), (STARTED, COLOURS[2], THAWED, CONTINUED), strict=True):
        figure.add_scatter(
            x=ends + 1, y=np.cumsum(seconds)[ends] / unit, mode="lines", stackgroup="time", name=what,
            line={"color": paint, "width": 1}, fillcolor=faded(paint, 0.5),
            hovertemplate=f"{what} until epoch %{{x}}: %{{y:.3g}} {name.lower()}<extra></extra>",
        )  # fmt: skip
    return figure.update_yaxes(title={"text": f"{name}, all workers"}, rangemode="tozero")


def _starting_seconds(study: StudyReader) -> dict[tuple[int, int], float]:
    """By run and epoch: what the first epoch of a start or thaw took beyond the median of the run's other epochs.

    Without other epochs of the run it is unknown, and is left out.
    """
    continued = continuations(study.history)
    first: dict[int, set[int]] = {}
    for record in study.history.decisions:
        if record.decision.number not in continued:
            first.setdefault(record.decision.run, set()).add(record.decision.from_epoch + 1)
    found = dict[tuple[int, int], float]()
    for number, epochs in first.items():
        seconds = study.runs[number - 1].seconds
        others = [s for epoch, s in enumerate(seconds, 1) if epoch not in epochs and s > 0]
        if others:
            usual = median(others)
            found |= {(number, e): max(seconds[e - 1] - usual, 0.0) for e in epochs if e <= len(seconds)}
    return {place: s for place, s in found.items() if not np.isnan(s)}


@of_study
def study_progression(study: StudyReader, depth: bool = True) -> Figure:
    """Draw the paper's figure 4 for this study: all learning curves, coloured by the time of training."""
    runs = study.runs
    order = [(i, run, epoch) for i, (_, run, epoch) in enumerate(study.history.epochs, 1)]
    if len(order) > MAX_POINTS:  # keep the runs with the most epochs
        longest = sorted(runs, key=lambda run: (-run.epoch, run.number))
        within = np.cumsum([run.epoch for run in longest]) <= MAX_POINTS
        kept = {run.number for run, fits in zip(longest, within, strict=True) if fits}
        order = [entry for entry in order if entry[1] in kept]
    if not order:
        figure = empty_figure("The runs of the study", "", "Epoch of the run", title(study.metric))
        return note(figure, no_loss(study))
    losses = [runs[run - 1].losses[epoch - 1] for _, run, epoch in order]
    times = [i for i, _, _ in order]
    highest = None if study.sign > 0 else float(np.max(losses))
    loss = title(study.metric)
    return progression([run for _, run, _ in order], losses, depth, loss=loss, highest=highest, times=times)
