"""Studies: `Study` is for users; `StudySession` is what everything else uses; `StudyReader` answers questions."""

from freezethaw.study.reader import StudyReader
from freezethaw.study.session import StudySession
from freezethaw.study.study import Study, read, session_of

__all__ = ["Study", "StudyReader", "StudySession", "read", "session_of"]
