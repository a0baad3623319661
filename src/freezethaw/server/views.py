"""The studies of a store as this process sees them: read only what changed, think once, and remember."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from typing import Any

from freezethaw.errors import StudyError
from freezethaw.figures import OF_A_STUDY
from freezethaw.store import Lease, Snapshot, Store, StoredStudy, StudyInfo, urls
from freezethaw.study import Study
from freezethaw.study.summary import summary

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # stands in an address as it is
SHORTEST_AGE, AGES = 1.0, 4.0  # seconds between two looks at a study, and in units of what the last one cost
MOST_FIGURES = 64
# these ask no model, so they never wait for one that thinks
MODEL_FREE = frozenset({"best_loss", "basket", "timeline", "parallel_coordinates", "study_progression"})


class Unknown(StudyError):  # noqa: N818 - what happened, not a mistake
    """Something that was asked for is not there."""


class Watched:
    """One study. Reading, drawing and thinking have locks of their own: a quick look never waits for a forecast."""

    def __init__(self, url: str, stored: StoredStudy) -> None:
        self.url, self.stored = url, stored
        self.thinking, self._drawing = threading.RLock(), threading.Lock()
        self._reading, self._standing = threading.Lock(), threading.Lock()
        self._known: Snapshot | None = None
        self._looked, self._change = -SHORTEST_AGE, -1
        self._study: Study | None = None
        self._still: Study | None = None
        self._made, self._cost, self._still_change = 0.0, 0.0, -1
        self._figures: OrderedDict[tuple[Any, ...], str] = OrderedDict()

    def known(self) -> Snapshot:
        """The study now."""
        with self._reading:
            self._known = self.stored.load(self._known)
            return self._known

    def change(self) -> int:
        """The change counter, asked for at most twice a second however many look."""
        with self._reading:
            if time.monotonic() - self._looked > 0.5:
                self._change, self._looked = self.stored.change(), time.monotonic()
            return self._change

    def summary(self, last: int = 30) -> dict[str, Any]:
        """What is recorded."""
        known = self.known()
        return summary(self.stored, last, known) | {"change": known.change}

    def still(self) -> tuple[int, Study]:
        """The study as of a moment ago, and its change; the costlier it is to forecast, the longer it stands."""
        with self._standing:
            age = time.monotonic() - self._made
            if self._still is None or (
                age > max(SHORTEST_AGE, AGES * self._cost) and self.change() != self._still_change
            ):
                self._study = self._study or Study.open(self.url, self.stored.name)
                self._still = self._study.still()
                self._still_change = self._study.shared.seen().change
                self._made, self._cost = time.monotonic(), 0.0
            return self._still_change, self._still

    def figure(self, name: str, options: dict[str, Any]) -> tuple[int, str]:
        """One figure as JSON, and the change that it shows."""
        quick = name in MODEL_FREE or options.get("forecasts") is False
        with self._drawing if quick else self.thinking:
            change, still = self.still()
            key = (name, change, *sorted(options.items()))
            if key not in self._figures:
                began = time.monotonic()
                text = OF_A_STUDY[name](still, **options).to_json()
                self._figures[key] = text
                self._cost += time.monotonic() - began
                while len(self._figures) > MOST_FIGURES:
                    self._figures.popitem(last=False)
                return change, text
            return change, self._figures[key]

    def steer(self) -> Study:
        """The study itself, to change it; use it within `thinking`."""
        self.still()
        assert self._study is not None  # noqa: S101 - made by still
        self._made = -1e9  # what is asked next shall see the change
        return self._study

    def ask(self) -> dict[str, Any]:
        """A decision for a trainer elsewhere. Its lease lives by the trainer's own heartbeats, not by this process."""
        with self.thinking:
            study = self.steer()
            decision = study.take_over() or study.ask()
            lease: Lease = study.shared.lease(decision)
            study.shared.let_go(decision)
        return {
            "number": decision.number,
            "kind": decision.kind,
            "run": decision.run,
            "config": dict(decision.config),
            "from_epoch": decision.from_epoch,
            "to_epoch": decision.to_epoch,
            "reason": decision.reason,
            "seed": study.training_seed(decision.run),
            "token": lease.token,
        }

    def close(self) -> None:
        """Leave the store."""
        if self._study is not None:
            self._study.close()


class Library:
    """All studies of one store."""

    def __init__(self, url: str) -> None:
        self.url, self.store = url, Store(url)
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()

    @property
    def shown(self) -> str:
        """Where it is, passwords masked."""
        return urls.shown(urls.parse(self.url))

    def studies(self) -> tuple[StudyInfo, ...]:
        """One line for each."""
        return self.store.studies()

    def watched(self, key: str) -> Watched:
        """A study by its name or its uid."""
        found = next((s for s in self.studies() if key in (s.name, s.uid)), None)
        if found is None:
            raise Unknown(f"there is no study {key!r}")
        with self._lock:
            if found.uid not in self._watched:
                self._watched[found.uid] = Watched(self.url, self.store.open(found.name))
            return self._watched[found.uid]

    def close(self) -> None:
        """Leave the store."""
        for watched in self._watched.values():
            watched.close()
        self.store.close()


def address(info: StudyInfo) -> str:
    """What names a study in an address: its name where that is plain, else its uid."""
    return info.name if PLAIN_NAME.fullmatch(info.name) else info.uid


def address_of(stored: StoredStudy) -> str:
    """The same of a study at hand."""
    return stored.name if PLAIN_NAME.fullmatch(stored.name) else stored.uid
