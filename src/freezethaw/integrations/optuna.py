"""Import and export Optuna studies: intermediate values of trials are learning curves. Optuna is imported on use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from freezethaw.errors import CurveError, FreezeThawError
from freezethaw.integrations.curves import Curve, curve_of, usual_distance
from freezethaw.integrations.from_curves import add_curves

if TYPE_CHECKING:
    from freezethaw.records import Run
    from freezethaw.study import Study

ENDED = ("COMPLETE", "PRUNED", "FAIL")  # states of trials that no longer change


def import_optuna(source: Any, into: Study, name: str | None = None) -> tuple[Run, ...]:
    """Add the learning curves of an Optuna study to a study, all or none.

    `source` is an Optuna study or the URL of its storage; `name` selects a study if the storage has several.
    `Space.from_optuna(study)` converts the search space. The number and the state of each trial, such as PRUNED, and
    its user attributes are the metrics of its last epoch.
    """
    old = _load(source, name)
    direction = _direction(old)
    if direction != into.definition.direction:
        raise CurveError(
            f"the Optuna study {old.study_name!r} has direction {direction!r}, this one {into.definition.direction!r}"
        )
    return add_curves(into, _curves(old))


def export_optuna(study: Study, storage: Any = None, name: str | None = None) -> Any:
    """Create an Optuna study with a trial for each run that is not being trained.

    A run that was trained to the end, and the one with the best loss, becomes a complete trial; a frozen run a pruned
    one; a diverged or failed run a failed one. The value is the best loss of the run, so that Optuna's best value is
    that of `study.best`. Losses become intermediate values, and the last value of each metric a user attribute.
    `storage` and `name` are passed to Optuna; `name` defaults to that of the study.
    """
    optuna = _library()
    distributions = study.definition.space.to_optuna()
    trials = []
    best, sign = study.best, study.definition.sign
    for run in study.runs:
        if run.state != "pending":
            whole = run.epoch >= study.definition.max_epochs or (best is not None and run.number == best.run)
            try:
                trials.append(_trial(optuna, run, distributions, whole, sign))
            except ValueError as error:
                raise CurveError(f"Optuna does not accept run {run.number}: {error}") from error
    new = optuna.create_study(storage=storage, study_name=name or study.name, direction=study.definition.direction)
    new.add_trials(trials)
    return new


def _trial(optuna: Any, run: Run, distributions: dict[str, Any], whole: bool, sign: float) -> Any:
    state = "COMPLETE" if whole else "FAIL" if run.state in ("diverged", "failed") else "PRUNED"
    return optuna.trial.create_trial(
        state=optuna.trial.TrialState[state],
        value=min(run.losses, key=lambda loss: sign * loss) if run.losses and state != "FAIL" else None,
        params=dict(run.config),
        distributions={name: distributions[name] for name in run.config},
        intermediate_values=dict(enumerate(run.losses, 1)),
        user_attrs={key: value for metrics in run.metrics for key, value in metrics.items()}
        | {"freezethaw_run": run.number, "freezethaw_state": run.state},
    )


def read_optuna(source: Any, name: str | None = None) -> tuple[Curve, ...]:
    """The learning curves of all ended trials with intermediate values; each is named by the trial's number."""
    return _curves(_load(source, name))


def _curves(old: Any) -> tuple[Curve, ...]:
    trials = [t for t in old.get_trials(deepcopy=False) if t.state.name in ENDED and t.intermediate_values]
    if not trials:
        raise CurveError(
            f"no trial of the Optuna study {old.study_name!r} has intermediate values; an objective "
            "reports them with trial.report(loss, epoch)"
        )
    usual = usual_distance(t.intermediate_values for t in trials)
    return tuple(
        replace(curve_of(t.intermediate_values, t.params, str(t.number), usual), about=_about(t)) for t in trials
    )


def _about(trial: Any) -> dict[str, Any]:
    """The number and state of a trial, and those of its user attributes that are plain values."""
    known = {key: value for key, value in trial.user_attrs.items() if isinstance(value, str | bool | int | float)}
    return known | {"optuna_trial": trial.number, "optuna_state": trial.state.name}


def _direction(old: Any) -> str:
    directions: list[str] = [direction.name.lower() for direction in old.directions]
    if len(directions) > 1:
        raise CurveError(f"the Optuna study {old.study_name!r} has {len(directions)} objectives; only one is supported")
    return directions[0]


def _library() -> Any:
    try:
        import optuna
    except ImportError:
        raise FreezeThawError("Optuna is not installed: pip install optuna") from None
    return optuna


def _load(source: Any, name: str | None) -> Any:
    optuna = _library()
    if isinstance(source, optuna.Study):
        return source
    if not isinstance(source, str):
        raise CurveError(f"expected an Optuna study or the URL of its storage, not {source!r}")
    names = optuna.get_all_study_names(storage=source)
    if name is None and len(names) != 1:
        if not names:
            raise CurveError("the storage has no Optuna study; is it the right one?")
        raise CurveError(f"choose a study with name=...: {', '.join(map(repr, names))}")
    if name is not None and name not in names:
        raise CurveError(f"there is no Optuna study {name!r}; there are: {', '.join(map(repr, names))}")
    return optuna.load_study(study_name=name or names[0], storage=source)
