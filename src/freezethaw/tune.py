"""`tune`: wires the study, the store, the engine and the training together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from freezethaw.errors import StudyError
from freezethaw.records import Best, Budget, Checkpoints, Config, Prices, Result
from freezethaw.runtime import inline
from freezethaw.runtime.local import LocalEngine, Place
from freezethaw.runtime.worker import Train, Watch
from freezethaw.space import Space
from freezethaw.study import Study
from freezethaw.trainers.of_class import function_of


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
    engine: Literal["inline", "processes"] | None = None,
    finish_best: bool = True,
    candidates: Sequence[Config] | None = None,
    policy: str = "improvement_rate",
    prices: Prices | None = None,
    watch: Watch | None = None,
    progress: bool | None = None,
) -> Result:
    """Search `space` for the configuration whose training ends best. `train(run)` is called for each start and thaw.

    The same call again with the same `store` and `name` continues; a larger budget continues a finished study. Without
    a store everything goes with the process. One worker trains in this process (`engine="inline"`), several in
    processes of their own. `watch` is called with each loss (inline only). `progress` None: on a terminal.
    """
    if workers < 1:
        raise StudyError(f"workers must be at least 1, not {workers!r}")
    engine = engine or ("inline" if workers == 1 else "processes")
    if engine == "inline" and workers > 1:
        raise StudyError("the inline engine is one worker; engine='processes' has several")
    function = function_of(train) if isinstance(train, type) else train
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
            budget=budget,
            finish_best=finish_best,
            prices=prices,
        )
        try:
            with _shown(study, progress) as look:
                if engine == "inline":
                    reason = inline.work(study, function, folder, kept, lambda *told: (look(), watch and watch(*told)))
                else:
                    reason = LocalEngine(Place(url, name, folder, kept), function, workers).run(study, look)
            best = _with_checkpoint(study.best, study, folder, store is not None or kept.folder is not None)
            return Result(best, reason, sum(run.epoch for run in study.runs if not run.added), study.runs)
        finally:
            study.close()


@contextmanager
def _shown(study: Study, wanted: bool | None) -> Iterator[Callable[[], None]]:
    """What the engine calls now and then to show how the study is doing."""
    from freezethaw.runtime.progress import Progress

    show = Progress()
    if not (show.console.is_terminal or show.console.is_jupyter if wanted is None else wanted):
        yield lambda: None
        return
    with show:
        show.look(study, always=True)  # what was trained before is not told again
        yield lambda: show.look(study)
        show.look(study, always=True)


@contextmanager
def _homes(store: str | None, checkpoints: Checkpoints) -> Iterator[tuple[str, str]]:
    """Where the study and its checkpoints are: a temporary folder for what the user gave no place."""
    with tempfile.TemporaryDirectory(prefix="freezethaw-") as temporary:
        url = store or f"sqlite:///{temporary}/study.db?synchronous=off"
        folder = checkpoints.folder
        if folder is None:
            folder = temporary if store is None else _beside(store)
        yield url, str(folder)


def _beside(store: str) -> Path:
    """Checkpoints lie beside an SQLite file, else in the folder of now."""
    file = store.removeprefix("sqlite:///") if store.startswith("sqlite:///") else ""
    return Path(file).absolute().parent / "checkpoints" if file else Path("checkpoints").absolute()


def _with_checkpoint(best: Best | None, study: Study, folder: str, lasting: bool) -> Best | None:
    """The best epoch and where it was saved; where that epoch was not, the run's best one that was."""
    if best is None or not lasting:
        return best
    losses = study.runs[best.run - 1].losses
    sign = 1.0 if study.direction == "minimize" else -1.0
    kept = sorted(
        study.shared.stored.checkpoints(best.run), key=lambda c: (c.epoch != best.epoch, sign * losses[c.epoch - 1])
    )
    return replace(best, checkpoint=Path(folder) / kept[0].place) if kept else best
