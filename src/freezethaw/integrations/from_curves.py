"""Forecasts for learning curves of other tools: a study is built from the curves and only its model is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from freezethaw.errors import CurveError
from freezethaw.integrations.curves import Curve
from freezethaw.losses import Forecast
from freezethaw.records import Run
from freezethaw.space import Choice, Float, Space
from freezethaw.study import Study, session_of
from freezethaw.study.study import parse_losses

LOG_SPAN = 100.0  # a positive parameter with a larger ratio of maximum to minimum gets a log scale

Direction = Literal["minimize", "maximize"]


def forecast(
    curves: Iterable[Curve],
    max_epochs: int,
    direction: Direction = "minimize",
    space: Space | Mapping[str, Any] | None = None,
) -> tuple[Forecast, ...]:
    """Forecast the loss of each curve at `max_epochs`. By default the space is inferred from the configurations."""
    study = study_from_curves(tuple(curves), max_epochs, direction, space)
    return tuple(study.forecast(run.number) for run in study.runs)


def study_from_curves(
    curves: Sequence[Curve],
    max_epochs: int,
    direction: Direction = "minimize",
    space: Space | Mapping[str, Any] | None = None,
) -> Study:
    """A study with these curves as runs 1, 2, ..."""
    if not curves:
        raise CurveError("there are no curves to forecast")
    if space is None:
        space, curves = _with_inferred_space(curves)
    space = Space.of(space)
    times = Counter(repr(sorted(curve.config.items())) for curve in curves)
    study = Study(space, max_epochs, direction=direction, repeats=max(times.values()))
    add_curves(study, curves)
    return study


def add_curves(study: Study, curves: Sequence[Curve]) -> tuple[Run, ...]:
    """Add learning curves to a study, all or none."""
    definition = study.definition
    most, reports = definition.max_epochs, []
    for curve in curves:
        if len(curve.losses) > most:
            raise CurveError(f"run {curve.name!r} has {len(curve.losses)} losses, more than max_epochs = {most}")
        report = parse_losses(list(curve.losses), None, most)
        if curve.about and report.losses:
            metrics: tuple[Mapping[str, Any], ...] = ({},) * (len(report.losses) - 1)
            report = replace(report, metrics=(*metrics, curve.about))
        reports.append((definition.space.validate(curve.config), report))
    return session_of(study).add_runs(reports)


def infer_space(configs: Sequence[dict[str, Any]]) -> Space:
    """The smallest space that contains these configurations.

    Numbers become a `Float`, other values a `Choice`, a single value a constant. A parameter that some configurations
    lack becomes conditional if one other choice explains it; otherwise it is left out.
    """
    names = list(dict.fromkeys(name for config in configs for name in config))
    return Space(
        {name: parameter for name in names if (parameter := _infer_parameter(name, names, configs)) is not None}
    )


def _infer_parameter(name: str, names: Sequence[str], configs: Sequence[dict[str, Any]]) -> Any:
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
    return Choice(different, when=when)


def _condition(name: str, names: Sequence[str], configs: Sequence[dict[str, Any]]) -> dict[str, list[Any]] | None:
    """The choice that determines which configurations have this parameter, with the values for which they do."""
    for other in names:
        if not all(isinstance(config.get(other), str | bool) for config in configs):
            continue
        having = {config[other] for config in configs if name in config}
        if not having & {config[other] for config in configs if name not in config}:
            return {other: sorted(having, key=str)}
    return None


def _with_inferred_space(curves: Sequence[Curve]) -> tuple[Space, Sequence[Curve]]:
    """An inferred space, and the curves with their configurations restricted to it."""
    space = infer_space([curve.config for curve in curves])
    known = {*space.parameters, *space.fixed}
    if space.parameters:
        return space, [replace(curve, config={k: v for k, v in curve.config.items() if k in known}) for curve in curves]
    # no parameter differs: each run gets a category of its own
    labels = [str(number) for number in range(1, len(curves) + 1)]
    space = Space(run=Choice(*labels) if len(labels) > 1 else labels[0])
    return space, [replace(c, config={"run": label}) for label, c in zip(labels, curves, strict=True)]
