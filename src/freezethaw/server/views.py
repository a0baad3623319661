"""Cached views of the studies of a store: only changes are read, and figures are drawn once per change."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from typing import Any

from freezethaw.errors import StudyError
from freezethaw.figures import STUDY_FIGURES
from freezethaw.records import StudyInfo, StudyState
from freezethaw.runtime.training_session import FAILED
from freezethaw.store import Storage, Store, urls
from freezethaw.study import Study, StudyReader, read, session_of
from freezethaw.study.summary import summary

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # used in URLs unchanged
MIN_AGE = 1.0  # seconds before a snapshot is renewed
AGE_PER_COST = 4.0  # and at least this multiple of the time spent on its figures
MAX_FIGURES = 64  # in the cache of a study
# figures that do not use the model, so they need not wait for it
MODEL_FREE = frozenset({"best_loss", "basket", "timeline", "parallel_coordinates", "study_progression"})


class NotFound(StudyError):  # noqa: N818
    """The requested object does not exist."""


class StudyView:
    """A cached view of one study. Separate locks: reading records never waits for a forecast."""

    def __init__(self, url: str, stored: Storage) -> None:
        self.url, self.stored = url, stored
        self.model_lock, self._figure_lock = threading.RLock(), threading.Lock()
        self._read_lock, self._snapshot_lock = threading.Lock(), threading.Lock()
        self._known: StudyState | None = None
        self._polled, self._change = -MIN_AGE, -1
        self._study: Study | None = None
        self._snapshot: StudyReader | None = None
        self._snapshot_time, self._cost, self._snapshot_change = 0.0, 0.0, -1
        self._figures: OrderedDict[tuple[Any, ...], str] = OrderedDict()

    def known(self) -> StudyState:
        """The current records."""
        with self._read_lock:
            self._known = self.stored.load(self._known)
            return self._known

    def change(self) -> int:
        """The change counter, read at most twice a second."""
        with self._read_lock:
            if time.monotonic() - self._polled > 0.5:
                self._change, self._polled = self.stored.change(), time.monotonic()
            return self._change

    def summary(self, last: int = 30) -> dict[str, Any]:
        """The summary of the records."""
        known = self.known()
        return summary(self.stored, last, known) | {"change": known.change}

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

    def read_only(self) -> tuple[int, StudyReader]:
        """The change counter and a read-only copy of the study, reused longer if its figures take longer."""
        with self._snapshot_lock:
            age = time.monotonic() - self._snapshot_time
            if self._snapshot is None or (
                age > max(MIN_AGE, AGE_PER_COST * self._cost) and self.change() != self._snapshot_change
            ):
                self._study = self._study or Study.open(self.url, self.stored.name)
                self._snapshot = read(self._study)
                self._snapshot_change = self._snapshot.state.change
                self._snapshot_time, self._cost = time.monotonic(), 0.0
            return self._snapshot_change, self._snapshot

    def figure(self, name: str, options: dict[str, Any]) -> tuple[int, str]:
        """The change counter and a figure as JSON."""
        model_free = name in MODEL_FREE or options.get("forecasts") is False
        with self._figure_lock if model_free else self.model_lock:
            change, study = self.read_only()
            key = (name, change, *sorted(options.items()))
            if key not in self._figures:
                began = time.monotonic()
                text = STUDY_FIGURES[name](study, **options).to_json()
                self._figures[key] = text
                self._cost += time.monotonic() - began
                while len(self._figures) > MAX_FIGURES:
                    self._figures.popitem(last=False)
                return change, text
            return change, self._figures[key]

    def writable(self) -> Study:
        """The study itself, for changes; hold `model_lock` while using it."""
        self.read_only()
        assert self._study is not None  # noqa: S101 - set by read_only
        self._snapshot_time = -1e9  # the next read sees the change
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
        if self._study is not None:
            self._study.close()


class StoreView:
    """The studies of one store."""

    def __init__(self, url: str) -> None:
        self.url, self.store = url, Store(url)
        self._watched: dict[str, StudyView] = {}
        self._lock = threading.Lock()

    @property
    def shown(self) -> str:
        """The URL, with passwords masked."""
        return urls.shown(urls.parse(self.url))

    def studies(self) -> tuple[StudyInfo, ...]:
        """Name, size and tags of each study."""
        return self.store.studies()

    def study(self, key: str) -> StudyView:
        """The view of a study, by its name or its uid."""
        found = next((s for s in self.studies() if key in (s.name, s.uid)), None)
        if found is None:
            raise NotFound(f"there is no study {key!r}")
        with self._lock:
            if found.uid not in self._watched:
                self._watched[found.uid] = StudyView(self.url, self.store.open(found.name))
            return self._watched[found.uid]

    def close(self) -> None:
        """Close the store."""
        for view in self._watched.values():
            view.close()
        self.store.close()


def info_key(info: StudyInfo) -> str:
    """The key of a study in URLs: its name if it needs no escaping, otherwise its uid."""
    return info.name if PLAIN_NAME.fullmatch(info.name) else info.uid


def url_key(stored: Storage) -> str:
    """The key of a stored study in URLs."""
    return stored.name if PLAIN_NAME.fullmatch(stored.name) else stored.uid
