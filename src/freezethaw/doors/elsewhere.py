"""Forecasts for curves that somebody else trained: they become the runs of a study that never asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from freezethaw.doors.curves import Curve
from freezethaw.errors import CurveError
from freezethaw.losses import Forecast
from freezethaw.records import Run
from freezethaw.space import Choice, Float, Space
from freezethaw.study import Study

LOG_SPAN = 100.0  # positive numbers that span more than this are compared by their logarithms

Direction = Literal["minimize", "maximize"]


def forecast(
    curves: Iterable[Curve], max_epochs: int, direction: Direction = "minimize", space: Space | None = None
) -> tuple[Forecast, ...]:
    """Where each curve would end at `max_epochs`, learnt from all of them; `space` is read off them unless given."""
    study = study_of(tuple(curves), max_epochs, direction, space)
    return tuple(study.forecast(run.number) for run in study.runs)


def study_of(
    curves: Sequence[Curve], max_epochs: int, direction: Direction = "minimize", space: Space | None = None
) -> Study:
    """A study that has these curves as runs 1, 2, ..."""
    if not curves:
        raise CurveError("there are no curves to forecast")
    if space is None:
        space, curves = _readable(curves)
    times = Counter(repr(sorted(curve.config.items())) for curve in curves)
    study = Study(space, max_epochs, direction=direction, repeats=max(times.values()))
    add_curves(study, curves)
    return study


def add_curves(study: Study, curves: Sequence[Curve]) -> tuple[Run, ...]:
    """Add curves to a study, as evidence; all or none."""
    for curve in curves:
        if len(curve.losses) > study.max_epochs:
            raise CurveError(
                f"run {curve.name!r} has {len(curve.losses)} losses, more than max_epochs = {study.max_epochs}"
            )
    return study.add_runs((curve.config, curve.losses) for curve in curves)


def space_of(configs: Sequence[dict[str, Any]]) -> Space:
    """The smallest space that holds these configurations.

    Numbers are a `Float`, all else a `Choice`, one value a fixed one. A parameter that some of them lack has a
    condition where one other choice explains it, and else is left out.
    """
    names = list(dict.fromkeys(name for config in configs for name in config))
    return Space({name: entry for name in names if (entry := _entry(name, names, configs)) is not None})


def _entry(name: str, names: Sequence[str], configs: Sequence[dict[str, Any]]) -> Any:
    values = [config[name] for config in configs if name in config]
    when = None
    if len(values) < len(configs):
        when = _condition(name, names, configs)
        if when is None:
            return None
    different = list({repr(value): value for value in values}.values())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        low, high = float(min(values)), float(max(values))
        if low < high:
            return Float(low, high, log=low > 0 and high > LOG_SPAN * low, when=when)
    if len(different) == 1 and when is None:
        return different[0]
    return Choice(*different, when=when)


def _condition(name: str, names: Sequence[str], configs: Sequence[dict[str, Any]]) -> dict[str, list[Any]] | None:
    """The choice that says which configurations have this parameter, and its values."""
    for other in names:
        if not all(isinstance(config.get(other), str | bool) for config in configs):
            continue
        having = {config[other] for config in configs if name in config}
        if not having & {config[other] for config in configs if name not in config}:
            return {other: sorted(having, key=str)}
    return None


def _readable(curves: Sequence[Curve]) -> tuple[Space, Sequence[Curve]]:
    """A space for the curves, and the curves with what of their configurations is in it."""
    space = space_of([curve.config for curve in curves])
    known = {*space.parameters, *space.fixed}
    if space.parameters:
        return space, [
            Curve({k: v for k, v in curve.config.items() if k in known}, curve.losses, curve.name) for curve in curves
        ]
    # nothing tells the runs apart: each is a configuration of its own, as far from the others as can be
    labels = [str(place) for place in range(1, len(curves) + 1)]
    space = Space(run=Choice(*labels) if len(labels) > 1 else labels[0])
    return space, [Curve({"run": label}, c.losses, c.name) for label, c in zip(labels, curves, strict=True)]
