"""What all engines do about workers that die: write it down, and give up where nobody gets anywhere."""

from __future__ import annotations

from freezethaw.errors import StudyError
from freezethaw.runtime.deaths import Cause
from freezethaw.runtime.worker import DIED
from freezethaw.study import Study

PATIENCE = 30.0  # seconds that workers have to save and leave
MOST_DEATHS = 20  # of workers in a row without an epoch between


class Toll:
    """The deaths of a study's workers, as events: whoever takes a run over reads there why its worker died."""

    def __init__(self, study: Study) -> None:
        self._study, self._epochs, self._deaths = study, _epochs(study), 0

    def add(self, number: int, holder: str, how: str, why: Cause, see: str) -> None:
        """Worker `number` died; `holder` as its leases name it, `see`: where more is to be found.

        Raises StudyError after too many deaths in a row without an epoch between.
        """
        details = {"worker": holder, "cause": why}
        self._study.shared.stored.add_event(DIED, f"worker {number} {how}", details=details)
        now = _epochs(self._study)
        self._deaths, self._epochs = (self._deaths + 1 if now == self._epochs else 1), now
        if self._deaths > MOST_DEATHS:
            raise StudyError(f"{self._deaths} workers died without one epoch between, the last one {how}; see {see}")


def _epochs(study: Study) -> int:
    return sum(run.epoch for run in study.runs)
