"""Cached views of the studies of a store: only changes are read, and figures are drawn once per change."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from freezethaw import figures
from freezethaw.errors import FreezeThawError, StudyError
from freezethaw.figures import STUDY_FIGURES
from freezethaw.records import History, Run, StudyInfo, StudyState
from freezethaw.runtime.training_session import FAILED
from freezethaw.store import Storage, Store, urls
from freezethaw.study import Study, StudyReader, read, session_of
from freezethaw.study.summary import summary

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # used in URLs unchanged
MIN_AGE = 0.3  # seconds before the change counter and a snapshot are read again
AGE_PER_COST = 4.0  # and for a snapshot whose model is used at least this multiple of the time spent on its figures
MAX_FIGURES = 64  # in the cache of a study
# figures that do not use the model, so they need not wait for it
MODEL_FREE = frozenset({"best_loss", "basket", "timeline", "time_spent", "parallel_coordinates", "study_progression"})


class NotFound(StudyError):  # noqa: N818
    """The requested object does not exist."""


class StudyView:
    """A cached view of one study. Separate locks: reading records never waits for a forecast."""

    def __init__(self, url: str, stored: Storage) -> None:
        self.url, self.stored, self.key = url, stored, stored.uid
        self.model_lock, self._figure_lock = threading.RLock(), threading.Lock()
        self._read_lock, self._snapshot_lock = threading.Lock(), threading.Lock()
        self._known: StudyState | None = None
        self._history: History | None = None
        self._polled, self._change = -MIN_AGE, -1
        self._study: Study | None = None
        self._records: StudyReader | None = None  # the current state; its model is used if it becomes the snapshot
        self._snapshot: StudyReader | None = None  # for figures that use the model
        self._forecasts: StudyReader | None = None  # the last snapshot whose forecasts are computed
        self._records_time, self._snapshot_time, self._cost = -1e9, -1e9, 0.0
        self._inferring, self._inferring_thread = threading.Lock(), threading.Thread()
        self._metrics: dict[int, tuple[int, Mapping[str, Any]]] = {}  # by run, with its epoch
        self._figures: OrderedDict[tuple[Any, ...], str] = OrderedDict()

    def known(self) -> StudyState:
        """The current records."""
        with self._read_lock:
            self._known = self.stored.load(self._known)
            return self._known

    def change(self) -> int:
        """The change counter, at most `MIN_AGE` old."""
        with self._read_lock:
            if time.monotonic() - self._polled > MIN_AGE:
                self._change, self._polled = self.stored.change(), time.monotonic()
            return self._change

    def summary(self, last: int = 30, known: StudyState | None = None) -> dict[str, Any]:
        """The summary of the records; of `known` if it is given."""
        known = known or self.known()
        return summary(self.stored, last, known) | {"change": known.change}

    def history(self) -> History:
        """All decisions and epochs."""
        with self._read_lock:
            self._history = self.stored.history(self._history)
            return self._history

    def failure(self, run: int) -> tuple[str, str] | None:
        """Why a run failed, and the traceback of its training, which may be empty; None if it has not failed."""
        if self.known().run(run).state != "failed":
            return None
        found, after = None, 0
        while events := self.stored.events(after):
            after = events[-1].number
            for event in events:
                if event.run == run and event.kind == FAILED:
                    found = event.text, str(event.details.get("traceback", ""))
        return found

    def last_metrics(self, run: Run) -> Mapping[str, Any]:
        """What a run reported last beside its losses; read again only after its next epoch."""
        epoch, found = self._metrics.get(run.number, (0, {}))
        if epoch != run.epoch:
            rows = self.stored.metrics(run.number)
            epoch, found = run.epoch, rows[-1] if rows else {}
            self._metrics[run.number] = epoch, found
        return found

    def read_only(self, model: bool = True) -> tuple[int, StudyReader]:
        """The change counter and a read-only copy of the study.

        A copy whose `model` is used is reused longer if its figures take longer.
        """
        with self._snapshot_lock:
            now = time.monotonic()
            if self._records is None or (
                now - self._records_time > MIN_AGE and self.change() != self._records.state.change
            ):
                self._study = self._study or Study.open(self.url, self.stored.name)
                self._records, self._records_time = read(self._study), now
            if not model:
                return self._records.state.change, self._records
            if self._snapshot is None or now - self._snapshot_time > max(MIN_AGE, AGE_PER_COST * self._cost):
                if self._snapshot is not self._records:
                    self._snapshot, self._cost = self._records, 0.0
                self._snapshot_time = now
            return self._snapshot.state.change, self._snapshot

    def figure(self, name: str, options: dict[str, Any]) -> tuple[str, str]:
        """The version of a figure, and the figure as JSON."""
        if name == "curves" and options.get("forecasts", True):
            return self._curves(options)
        model_free = name in MODEL_FREE or options.get("forecasts") is False
        with self._figure_lock if model_free else self.model_lock:
            change, study = self.read_only(not model_free)
            key = (name, change, *sorted(options.items()))
            if key not in self._figures:
                began = time.monotonic()
                self._keep(key, STUDY_FIGURES[name](study, **options).to_json())
                if not model_free:
                    self._cost += time.monotonic() - began
            return str(change), self._figures[key]

    def _curves(self, options: dict[str, Any]) -> tuple[str, str]:
        """The current losses with the last forecasts; current forecasts are computed for the next request.

        The version has the change counters of both.
        """
        model = self._forecasts
        if model is None:
            model = self._infer()
        elif model.state.change != self.change() and self._inferring.acquire(blocking=False):
            self._inferring_thread = threading.Thread(target=self._infer_for_later, daemon=True)
            self._inferring_thread.start()
        with self._figure_lock:
            change, study = self.read_only(False)
            if model.state.change > change:
                change, study = model.state.change, model
            version = f"{change}.{model.state.change}"
            key = ("curves", version, *sorted(options.items()))
            if key not in self._figures:
                self._keep(key, figures.curves(study, **options, model=model).to_json())
            return version, self._figures[key]

    def _infer(self) -> StudyReader:
        """The read-only copy of the study, with its forecasts computed."""
        with self.model_lock:
            _, study = self.read_only()
            if study is not self._forecasts:
                began = time.monotonic()
                _ = study.inference
                self._cost += time.monotonic() - began
                self._forecasts = study
            return study

    def _infer_for_later(self) -> None:
        try:
            with suppress(FreezeThawError):  # the store is temporarily unavailable: the next request tries again
                self._infer()
        finally:
            self._inferring.release()

    def _keep(self, key: tuple[Any, ...], text: str) -> None:
        self._figures[key] = text
        while len(self._figures) > MAX_FIGURES:
            self._figures.popitem(last=False)

    def writable(self) -> Study:
        """The study itself, for changes; hold `model_lock` while using it."""
        self.read_only()
        assert self._study is not None  # noqa: S101 - set by read_only
        self._records_time = self._snapshot_time = self._polled = -1e9  # the next read sees the change
        return self._study

    def ask(self) -> dict[str, Any]:
        """A decision for a trainer that uses HTTP; the trainer's own heartbeats keep its lease."""
        with self.model_lock:
            study = self.writable()
            session, decision = session_of(study), study.ask()
            lease = session.lease(decision)
            session.let_go(decision)
        return {
            "number": decision.number,
            "kind": decision.kind,
            "run": decision.run,
            "config": dict(decision.config),
            "from_epoch": decision.from_epoch,
            "to_epoch": decision.to_epoch,
            "reason": decision.reason,
            "seed": session.training_seed(decision.run),
            "token": lease.token,
        }

    def close(self) -> None:
        """Close the store."""
        if self._inferring_thread.is_alive():
            self._inferring_thread.join()
        if self._study is not None:
            self._study.close()


class StoreView:
    """The studies of one or more stores."""

    def __init__(self, stores: str | Sequence[str]) -> None:
        self.urls = (stores,) if isinstance(stores, str) else tuple(stores)
        self.stores = tuple(Store(url) for url in self.urls)
        self._watched: dict[str, StudyView] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The store in which studies are created by HTTP: the first."""
        return self.urls[0]

    @property
    def shown(self) -> str:
        """The URLs, with passwords masked."""
        return ", ".join(urls.shown(urls.parse(url)) for url in self.urls)

    def studies(self) -> tuple[StudyInfo, ...]:
        """Name, size and tags of each study."""
        return tuple(info for store in self.stores for info in store.studies())

    def keys(self) -> dict[str, str]:
        """The key in URLs of each study, by uid: its name if it needs no escaping and is unique, otherwise its uid."""
        found = self.studies()
        names = Counter(info.name for info in found)
        return {i.uid: i.name if PLAIN_NAME.fullmatch(i.name) and names[i.name] == 1 else i.uid for i in found}

    def study(self, key: str) -> StudyView:
        """The view of a study, by its name or its uid."""
        for url, store in zip(self.urls, self.stores, strict=True):
            for info in store.studies():
                if key in (info.name, info.uid):
                    return self._view(url, store, info)
        raise NotFound(f"there is no study {key!r}")

    def _view(self, url: str, store: Store, info: StudyInfo) -> StudyView:
        with self._lock:
            if info.uid not in self._watched:
                self._watched[info.uid] = StudyView(url, store.open(info.name))
            view = self._watched[info.uid]
        view.key = self.keys().get(info.uid, info.uid)
        return view

    def close(self) -> None:
        """Close the stores."""
        for view in self._watched.values():
            view.close()
        for store in self.stores:
            store.close()
