"""One BLAS thread for a decision: it sits beside training, and it must be reproducible."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks through the loaded libraries once


def one_thread() -> AbstractContextManager[object]:
    """Limit linear algebra to one thread while in this context."""
    context: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return context
