"""`tune`: connects the study, the store, the engine and the training function."""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from freezethaw.decide.definition import Bounds
from freezethaw.errors import Interrupted, StudyError
from freezethaw.records import Best, Budget, Checkpoints, Config, Prices, Result, Run
from freezethaw.runtime.callbacks import Callback, observed
from freezethaw.runtime.local import LocalEngine, work_inline
from freezethaw.runtime.ray import RayEngine, RayWorkers
from freezethaw.runtime.serialization import check_training
from freezethaw.runtime.signals import TIMEOUT, Leaving, on_signals
from freezethaw.runtime.training_session import FAILED
from freezethaw.runtime.worker import INTERRUPTED
from freezethaw.runtime.worker_process import WorkerSpec
from freezethaw.space import Space
from freezethaw.study import Study, StudySession, read, session_of
from freezethaw.trainers import Train, function_of, limited
from freezethaw.trainers.importing import refuse_while_importing

Engine = Literal["inline", "processes"] | RayEngine


def tune(
    train: Train | type,
    space: Space | Mapping[str, Any],
    max_epochs: int,
    budget: Budget | int | None = None,
    *,
    timeout: float | None = None,
    name: str = "study",
    workers: int = 1,
    store: str | Path | None = None,
    seed: int = 0,
    metric: str = "loss",
    direction: Literal["minimize", "maximize"] = "minimize",
    bounds: Bounds | None = None,
    checkpoints: Checkpoints | None = None,
    engine: Literal["inline", "processes"] | RayEngine | None = None,
    finish_best: bool = True,
    epoch_limit: float | None = None,
    grace: float | None = None,
    candidates: Sequence[Config] | None = None,
    policy: str = "improvement_rate",
    model: str = "drift",
    prices: Prices | None = None,
    repeats: int = 1,
    learn_from: str | Path | Study | Sequence[str | Path | Study] = (),
    callbacks: Sequence[Callback] = (),
    tags: Sequence[str] | None = None,
    progress: bool | None = None,
) -> Result:
    """Search `space` for the configuration whose training ends best. `train(run)` is called for each start and thaw.

    The same call again with the same `store` and `name` continues; a larger budget continues a finished study. Without
    a store nothing is kept after the call, except the checkpoint of the best epoch: it exists as long as `result.best`
    or the result. One worker trains in this process (`engine="inline"`), several in processes
    of their own, or on a cluster as actors of Ray (`engine=ft.RayEngine()`).

    `budget` counts the whole study; `timeout` is in wall-clock seconds and counts this call, deciding, saving and
    loading included: at its end all runs are frozen, and the same call continues. One of the two is needed.
    `metric`: the name of what `train` reports, such as "accuracy", used wherever it is shown. `bounds`: values that it
    can never leave, such as (0, None) for an error or (0, 1) for an accuracy; no forecast leaves them.
    `repeats`: how often a configuration may be started, each time with a seed of its own, for trainings with much
    run-to-run variance.
    `learn_from`: earlier studies of related problems: their stores ("old.db", or "team.db#name" if a store holds
    several) or `Study` objects. The search starts with what they expect to be best, and learns how far to trust them.
    `epoch_limit`: seconds for one epoch (the first of a start or thaw includes building and loading). A run that takes
    longer has failed; its process is ended and replaced, so this needs processes, also for one worker.
    `grace`: seconds that the machine grants between a signal (SIGTERM, SIGHUP, Ctrl-C) and its end. Worker processes
    that have not saved by then are killed. A run whose epochs take longer is saved after each of them, so no recorded
    epoch is trained again. None: workers have as long as their epoch takes.
    `callbacks`: each is called, in this process, with a `Notice` of every decision, epoch, freeze and end. One that
    raises is reported, and the study continues. `tags`: by which to find the study again; None keeps those it has.
    `progress`: show a display; by default on a terminal.

    Raises `Interrupted`, a `KeyboardInterrupt`, if a signal asked to stop, after all runs were frozen.
    """
    refuse_while_importing()
    _check_limits(budget, timeout)
    _check_seconds("grace", grace)
    function, limit = _limited(train, epoch_limit, grace)
    chosen = _engine(engine, workers, limit)
    kept, leaving = checkpoints or Checkpoints(), Leaving()
    with on_signals(leaving), leaving.after(timeout), _locations(store, chosen) as (url, temporary):
        study = Study(
            space,
            max_epochs,
            name=name,
            metric=metric,
            direction=direction,
            bounds=bounds,
            seed=seed,
            store=url,
            candidates=candidates,
            policy=policy,
            model=model,
            budget=budget,
            finish_best=finish_best,
            prices=prices,
            repeats=repeats,
            learn_from=learn_from,
        )
        with study:
            session = session_of(study)
            if tags is not None:
                session.storage.set_tags(tags)
            session.storage.set_disk_budget(kept.gb)
            if kept.folder is not None or store is None:
                session.set_checkpoint_folder(str(kept.folder or temporary))
            folder = session.checkpoint_folder
            with observed(session, callbacks, progress) as (update, ended):
                check_training(session.storage, function)
                spec = WorkerSpec(url or "", name, folder, kept, limit, grace)
                with _explained(session):
                    reason = _work(chosen, workers, session, function, spec, leaving, update)
                if leaving.why == TIMEOUT and reason == INTERRUPTED:
                    reason = f"timeout: {timeout:g} s have passed; the same call continues the study"
                ended(reason)
            reader = read(study)
            _warn_of_failures(session, reader.runs)
            if reason == INTERRUPTED:
                stopped = Interrupted(leaving.why)
                sys.stderr.write(f"freezethaw: {stopped}\n")
                raise stopped
            lost = folder == temporary
            best, recommended = _kept(reader.best, lost), _kept(reader.recommended, lost)
            return Result(
                best,
                recommended,
                reason,
                reader.state.epochs_trained(),
                tuple(run.detached() for run in reader.runs),
                reader.state.seconds_trained(),
                session.storage.deciding_seconds(),
                reader.metric,
                "" if reader.best is not None else _why_no_best(session, reader.runs, reason),
            )


def _check_limits(budget: Budget | int | None, timeout: float | None) -> None:
    if budget is None and timeout is None:
        raise StudyError("give a budget (of the whole study, such as 1000 epochs) or a timeout (seconds of this call)")
    _check_seconds("timeout", timeout)


def _check_seconds(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, int | float) and value > 0):
        raise StudyError(f"{name} must be a positive number of seconds, not {value!r}")


def _limited(train: Train | type, epoch_limit: float | None, grace: float | None) -> tuple[Train, float | None]:
    """The training as a function, and the limit that its worker must enforce: a command enforces its own."""
    if not callable(train):
        raise StudyError(f"train must be a function of a run, a class or a command, not {train!r}")
    seconds: object = epoch_limit
    if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
        raise StudyError(f"epoch_limit must be a positive number of seconds, not {epoch_limit!r}")
    return limited(function_of(train) if isinstance(train, type) else train, epoch_limit, grace)


def _engine(wanted: Engine | None, workers: int, limit: float | None) -> Engine:
    """The engine that is wanted, or the simplest one that is possible."""
    count: object = workers
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise StudyError(f"workers must be a positive integer, not {workers!r}")
    engine = wanted or ("inline" if workers == 1 and limit is None else "processes")
    if engine == "inline" and workers > 1:
        raise StudyError("the inline engine is one worker; engine='processes' has several")
    if engine == "inline" and limit is not None:
        raise StudyError("nothing can interrupt a training in this process; epoch_limit needs engine='processes'")
    return engine


def _work(
    engine: Engine,
    workers: int,
    session: StudySession,
    train: Train,
    spec: WorkerSpec,
    leaving: Leaving,
    update: Callable[[], None],
) -> str:
    """Train until the study ends or `leaving` says so; returns why. `update` is called again and again."""
    if engine == "inline":
        return work_inline(session, train, spec, leaving, update)
    if isinstance(engine, RayEngine):
        return RayWorkers(engine, spec, train, workers).run(session, leaving, update)
    return LocalEngine(spec, train, workers).run(session, leaving, update)


def _warn_of_failures(session: StudySession, runs: Sequence[Run]) -> None:
    """Say on standard error how many runs failed or diverged, with the first traceback: no failure is silent."""
    counts = Counter(run.state for run in runs if not run.added)
    ended = [f"{counts[state]} {state}" for state in ("failed", "diverged") if counts[state]]
    if not ended or (not counts["failed"] and any(run.losses for run in runs)):  # some divergence is normal
        return
    lines = [f"freezethaw: of {sum(counts.values())} runs {' and '.join(ended)}", *_first_failure(session)]
    if not any(run.losses for run in runs):
        lines.append(f"no run has a finite {session.definition.metric}: there is no best configuration")
    sys.stderr.write("\n".join(line for line in lines if line) + "\n")


def _first_failure(session: StudySession) -> list[str]:
    """The first failure with the user's traceback; nothing if no run failed."""
    found = session.events(FAILED)[:1]
    return [
        line for e in found for line in (f"the first failure: {e.text}", str(e.details.get("traceback", "")).rstrip())
    ]


@contextmanager
def _explained(session: StudySession) -> Iterator[None]:
    """If the search is given up because its runs fail, the first traceback is part of the exception."""
    try:
        yield
    except StudyError as error:
        for line in _first_failure(session):
            error.add_note(line)
        raise


def _why_no_best(session: StudySession, runs: Sequence[Run], reason: str) -> str:
    metric, counts = session.definition.metric, Counter(run.state for run in runs)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    if not counts:
        return f"there is no best: no run was started ({reason})"
    first = next((event.text for event in session.events(FAILED)), "")
    return f"there is no best: no run has a finite {metric} ({states})" + (
        f"; the first failure: {first}" if first else ""
    )


@contextmanager
def _locations(store: str | Path | None, engine: Engine) -> Iterator[tuple[str | None, str]]:
    """The URL of the store, and a temporary folder: for checkpoints without a store.

    Without a store the study is kept in memory; several processes need one, in the temporary folder.
    """
    with tempfile.TemporaryDirectory(prefix="freezethaw-") as temporary:
        url = str(store) if store is not None else None
        if url is None and engine != "inline":
            url = f"sqlite:///{temporary}/study.db?synchronous=off"
        yield url, temporary


def _kept(best: Best | None, temporary: bool) -> Best | None:
    """An epoch, complete without the store, which is closed afterwards.

    A checkpoint in a temporary folder is copied to another one, which exists as long as the epoch that is returned.
    """
    if best is None or best.checkpoint is None or not temporary:
        return None if best is None else best.detached(best.checkpoint)
    copy = _Kept()
    folder = copy.folder / best.checkpoint.name
    shutil.copytree(best.checkpoint, folder)
    return best.detached(folder, copy)


class _Kept:
    """A temporary folder that is removed with this object, at the latest when Python ends."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="freezethaw-best-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
