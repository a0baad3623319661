"""A thread that sends heartbeats for leases while their holder trains or decides."""

from __future__ import annotations

import threading
from collections.abc import Callable

from freezethaw.errors import LeaseLost, StoreError
from freezethaw.records import Lease
from freezethaw.store.storage import LEASE_SECONDS

BEATS = 4  # per lease time: three may be late or fail before another process may take the lease over


class Heartbeat:
    """Sends heartbeats for leases. `lost` has those that another process took over: stop training those runs."""

    def __init__(self, beat: Callable[[Lease], None], *leases: Lease, seconds: float = LEASE_SECONDS) -> None:
        self._beat, self._pause = beat, seconds / BEATS
        self._held, self._lost = set(leases), set[Lease]()
        self._lock, self._leave = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="freezethaw-heartbeat", daemon=True)
        self.trouble: StoreError | None = None  # of the last beat, if it failed

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()

    @property
    def lost(self) -> frozenset[Lease]:
        """Leases that others have taken over."""
        with self._lock:
            return frozenset(self._lost)

    def add(self, lease: Lease) -> None:
        """Beat for this one too."""
        with self._lock:
            self._held.add(lease)

    def remove(self, lease: Lease) -> None:
        """Beat no more for a lease; do so before it is given back."""
        with self._lock:
            self._held.discard(lease)

    def _go_on(self) -> None:
        while not self._leave.wait(self._pause):
            with self._lock:
                held = sorted(self._held, key=lambda lease: lease.run)
            for lease in held:
                self._beat_for(lease)

    def _beat_for(self, lease: Lease) -> None:
        try:
            self._beat(lease)
            self.trouble = None
        except LeaseLost:
            with self._lock:
                if lease in self._held and not self._leave.is_set():  # else its holder gave it back meanwhile
                    self._lost.add(lease)
                self._held.discard(lease)
        except StoreError as error:
            self.trouble = error  # a server that is away for a moment: the next beat may get through
