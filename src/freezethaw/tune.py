"""`tune`: wires the study, the store, the engine and the training together."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from freezethaw.errors import StudyError
from freezethaw.records import Best, Budget, Checkpoints, Config, Prices, Result
from freezethaw.runtime import inline
from freezethaw.runtime.keeper import nearest
from freezethaw.runtime.local import LocalEngine
from freezethaw.runtime.notices import Callback, Teller
from freezethaw.runtime.places import beside
from freezethaw.runtime.ray import RayCrew, RayEngine
from freezethaw.runtime.worker_process import Place
from freezethaw.space import Space
from freezethaw.study import Study
from freezethaw.trainers import Train, function_of, limited

Engine = Literal["inline", "processes"] | RayEngine


def tune(
    train: Train | type,
    space: Space,
    max_epochs: int,
    budget: Budget | int,
    name: str = "study",
    workers: int = 1,
    store: str | None = None,
    seed: int = 0,
    direction: Literal["minimize", "maximize"] = "minimize",
    checkpoints: Checkpoints | None = None,
    engine: Literal["inline", "processes"] | RayEngine | None = None,
    finish_best: bool = True,
    epoch_limit: float | None = None,
    candidates: Sequence[Config] | None = None,
    policy: str = "improvement_rate",
    model: str = "drift",
    prices: Prices | None = None,
    repeats: int = 1,
    callbacks: Sequence[Callback] = (),
    tags: Sequence[str] | None = None,
    progress: bool | None = None,
) -> Result:
    """Search `space` for the configuration whose training ends best. `train(run)` is called for each start and thaw.

    The same call again with the same `store` and `name` continues; a larger budget continues a finished study. Without
    a store everything goes with the process. One worker trains in this process (`engine="inline"`), several in
    processes of their own, or on a cluster as actors of Ray (`engine=ft.RayEngine()`).

    `repeats`: how often a configuration may be started, each time with a seed of its own, for trainings in which luck
    matters.
    `epoch_limit`: seconds for one epoch (the first of a start or thaw with building and loading). A run that takes
    longer has failed; its process is ended and replaced, so this needs processes, also for one worker.
    `callbacks`: each is called, in this process, with a `Notice` of every decision, epoch, freeze and end. One that
    raises is reported, and the study goes on. `tags`: words by which to find the study again; None leaves those that
    it has. `progress` None: on a terminal.
    """
    function, limit = _limited(train, epoch_limit)
    chosen = _engine(engine, workers, limit)
    kept = checkpoints or Checkpoints()
    with _homes(store, kept) as (url, folder):
        study = Study(
            space,
            max_epochs,
            name=name,
            direction=direction,
            seed=seed,
            store=url,
            candidates=candidates,
            policy=policy,
            model=model,
            budget=budget,
            finish_best=finish_best,
            prices=prices,
            repeats=repeats,
        )
        try:
            if tags is not None:
                study.shared.stored.tag(tags)
            study.shared.stored.set_disk_budget(kept.gb)
            with _watched(study, callbacks, progress) as (look, ends):
                place = Place(url, name, folder, kept, limit)
                reason = _work(chosen, workers, study, function, place, look)
                ends(reason)
            best = _with_checkpoint(study.best, study, folder, store is not None or kept.folder is not None)
            return Result(best, reason, sum(run.epoch for run in study.runs if not run.added), study.runs)
        finally:
            study.close()


def _limited(train: Train | type, epoch_limit: float | None) -> tuple[Train, float | None]:
    """The training as a function, and the limit that its worker must keep: a command keeps its own."""
    if epoch_limit is not None and not epoch_limit > 0:
        raise StudyError(f"epoch_limit must be a positive number of seconds, not {epoch_limit!r}")
    return limited(function_of(train) if isinstance(train, type) else train, epoch_limit)


def _engine(told: Engine | None, workers: int, limit: float | None) -> Engine:
    """The engine that was told, or the simplest one that serves."""
    if workers < 1:
        raise StudyError(f"workers must be at least 1, not {workers!r}")
    engine = told or ("inline" if workers == 1 and limit is None else "processes")
    if engine == "inline" and workers > 1:
        raise StudyError("the inline engine is one worker; engine='processes' has several")
    if engine == "inline" and limit is not None:
        raise StudyError("nothing can interrupt a training in this process; epoch_limit needs engine='processes'")
    return engine


def _work(engine: Engine, workers: int, study: Study, train: Train, place: Place, look: Callable[[], None]) -> str:
    """Train until the study ends; returns why. `look` is called now and then."""
    if engine == "inline":
        return inline.work(study, train, place.folder, place.checkpoints, look)
    if isinstance(engine, RayEngine):
        return RayCrew(engine, place, train, workers).run(study, look)
    return LocalEngine(place, train, workers).run(study, look)


@contextmanager
def _watched(
    study: Study, callbacks: Sequence[Callback], progress: bool | None
) -> Iterator[tuple[Callable[[], None], Callable[[str], None]]]:
    """What to call now and then, and once with why it ended: the display and the user's callbacks hear of it."""
    teller = Teller(study, callbacks)
    with _shown(study, progress) as show, teller.until_the_end() as ends:

        def look() -> None:
            show()
            teller.look()

        yield look, ends


@contextmanager
def _shown(study: Study, wanted: bool | None) -> Iterator[Callable[[], None]]:
    """What the engine calls now and then to show how the study is doing."""
    if not (_somebody_looks() if wanted is None else wanted):
        yield lambda: None
        return
    from freezethaw.runtime.progress import Progress  # and the terminal library only where something is shown

    show = Progress()
    with show:
        show.look(study, always=True)  # what was trained before is not told again
        yield lambda: show.look(study)
        show.look(study, always=True)


def _somebody_looks() -> bool:
    """Whether this is a terminal or a notebook."""
    return sys.stdout.isatty() or "ipykernel" in sys.modules


@contextmanager
def _homes(store: str | None, checkpoints: Checkpoints) -> Iterator[tuple[str, str]]:
    """Where the study and its checkpoints are: a temporary folder for what the user gave no place."""
    with tempfile.TemporaryDirectory(prefix="freezethaw-") as temporary:
        url = store or f"sqlite:///{temporary}/study.db?synchronous=off"
        folder = checkpoints.folder
        if folder is None:
            folder = temporary if store is None else beside(store)
        yield url, str(folder)


def _with_checkpoint(best: Best | None, study: Study, folder: str, lasting: bool) -> Best | None:
    """The best epoch and where it was saved; where that epoch was not, the run's best one that was."""
    if best is None or not lasting:
        return best
    saved = nearest(study, best)
    return best if saved is None else replace(best, checkpoint=Path(folder) / saved.place)
