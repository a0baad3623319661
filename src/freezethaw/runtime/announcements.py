"""Events that whoever called `tune` must be told at once, whichever process noticed them: on standard error."""

from __future__ import annotations

import sys
import time

from freezethaw.runtime.fingerprint import CHANGED
from freezethaw.runtime.training_session import NOT_SAVED
from freezethaw.study import StudySession

KINDS = (NOT_SAVED, CHANGED)
PAUSE = 1.0  # seconds between two looks


class Announcements:
    """Prints new events of these kinds."""

    def __init__(self, session: StudySession) -> None:
        self._session, self._looked = session, time.monotonic()
        last = session.storage.last_events(1)
        self._seen = last[-1].number if last else 0

    def update(self, always: bool = False) -> None:
        """Print what is new."""
        if not always and time.monotonic() - self._looked < PAUSE:
            return
        self._looked = time.monotonic()
        for event in self._session.storage.events(self._seen):
            self._seen = event.number
            if event.kind in KINDS:
                sys.stderr.write(f"freezethaw: {event.text}\n")
