"""Where studies are kept: `Storage` is the protocol, in memory or in SQL; a `Store` is a database with many studies.

SQLAlchemy is imported only when a database is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freezethaw.store.memory import MemoryStorage
from freezethaw.store.storage import LEASE_SECONDS, Definition, Heartbeat, LeaseState, Process, Storage, Watcher

if TYPE_CHECKING:
    from freezethaw.store.store import Store

__all__ = [
    "LEASE_SECONDS",
    "Definition",
    "Heartbeat",
    "LeaseState",
    "MemoryStorage",
    "Process",
    "Storage",
    "Store",
    "Watcher",
]


def __getattr__(name: str) -> object:
    if name == "Store":
        from freezethaw.store.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
