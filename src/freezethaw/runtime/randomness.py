"""The random generators that all code of a process shares: a training may draw from them without owning them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any


def remembered() -> Callable[[], None]:
    """Remember the state of Python's, NumPy's and torch's generators; call what this gives to put it back."""
    restore: list[Callable[[], object]] = [partial(random.setstate, random.getstate())]
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        restore.append(partial(numpy.random.set_state, numpy.random.get_state()))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        restore.append(partial(torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            restore.append(partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))

    def put_back() -> None:
        for one in restore:
            one()

    return put_back
