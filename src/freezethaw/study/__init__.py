"""Ask and tell."""

from freezethaw.study.study import Study

__all__ = ["Study"]
