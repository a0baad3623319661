"""From Optuna and to it: the intermediate values of trials are curves. Optuna is needed only where this is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freezethaw.doors.curves import Curve, curve_of, usual_distance
from freezethaw.doors.elsewhere import add_curves
from freezethaw.errors import CurveError, FreezeThawError

if TYPE_CHECKING:
    from freezethaw.records import Run
    from freezethaw.study import Study

OVER = ("COMPLETE", "PRUNED", "FAIL")  # states of trials that change no more


def import_optuna(source: Any, into: Study, name: str | None = None) -> tuple[Run, ...]:
    """Add the curves of an Optuna study to a study, as evidence; all or none.

    `source` is a study of Optuna or the URL of its storage, with the study's `name` where there are several. The space
    may be Optuna's own: `Space.from_optuna(trial.distributions)`.
    """
    old = _opened(source, name)
    direction = _direction(old)
    if direction != into.direction:
        raise CurveError(f"the Optuna study {old.study_name!r} is to {direction}, and this one to {into.direction}")
    return add_curves(into, _curves(old))


def export_optuna(study: Study, storage: Any = None, name: str | None = None) -> Any:
    """A new study of Optuna with a trial for each run that is not being trained, for its samplers and plots.

    A run that was trained to the end is a complete trial, with its last loss as value; a frozen one is pruned; one that
    diverged or failed has failed. The losses are intermediate values, by epoch. `storage` and `name` as Optuna takes
    them; `name` None is the study's own.
    """
    optuna = _library()
    distributions = study.space.to_optuna()
    trials = []
    for run in study.runs:
        if run.state != "pending":
            try:
                trials.append(_trial(optuna, run, distributions, run.epoch >= study.max_epochs))
            except ValueError as error:
                raise CurveError(f"run {run.number} is no trial that Optuna takes: {error}") from error
    new = optuna.create_study(storage=storage, study_name=name or study.name, direction=study.direction)
    new.add_trials(trials)
    return new


def _trial(optuna: Any, run: Run, distributions: dict[str, Any], whole: bool) -> Any:
    state = "FAIL" if run.state in ("diverged", "failed") else "COMPLETE" if whole else "PRUNED"
    return optuna.trial.create_trial(
        state=optuna.trial.TrialState[state],
        value=run.losses[-1] if run.losses and state != "FAIL" else None,
        params=dict(run.config),
        distributions={name: distributions[name] for name in run.config},
        intermediate_values=dict(enumerate(run.losses, 1)),
        user_attrs={"freezethaw_run": run.number},
    )


def read_optuna(source: Any, name: str | None = None) -> tuple[Curve, ...]:
    """The curves of all trials that are over and reported something; a trial's number is the run's name."""
    return _curves(_opened(source, name))


def _curves(old: Any) -> tuple[Curve, ...]:
    trials = [t for t in old.get_trials(deepcopy=False) if t.state.name in OVER and t.intermediate_values]
    if not trials:
        raise CurveError(
            f"no trial of the Optuna study {old.study_name!r} has intermediate values; objectives give them by "
            "trial.report(loss, epoch)"
        )
    usual = usual_distance(t.intermediate_values for t in trials)
    return tuple(curve_of(t.intermediate_values, t.params, str(t.number), usual) for t in trials)


def _direction(old: Any) -> str:
    directions: list[str] = [direction.name.lower() for direction in old.directions]
    if len(directions) > 1:
        raise CurveError(f"the Optuna study {old.study_name!r} has {len(directions)} objectives; curves have one loss")
    return directions[0]


def _library() -> Any:
    try:
        import optuna
    except ImportError:
        raise FreezeThawError("this needs optuna, which is not installed: pip install optuna") from None
    return optuna


def _opened(source: Any, name: str | None) -> Any:
    optuna = _library()
    if isinstance(source, optuna.Study):
        return source
    if not isinstance(source, str):
        raise CurveError(f"expected a study of Optuna or the URL of its storage, not {source!r}")
    names = optuna.get_all_study_names(storage=source)
    if name is None and len(names) != 1:
        raise CurveError(f"which study? name one of {', '.join(map(repr, names)) or 'none: the storage is empty'}")
    if name is not None and name not in names:
        raise CurveError(f"there is no Optuna study {name!r}; there are: {', '.join(map(repr, names))}")
    return optuna.load_study(study_name=name or names[0], storage=source)
