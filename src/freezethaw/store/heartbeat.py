"""A thread that keeps leases alive while their holder trains or decides."""

from __future__ import annotations

import threading
from collections.abc import Callable

from freezethaw.errors import LeaseLost, StoreError
from freezethaw.store.leases import LEASE_SECONDS
from freezethaw.store.records import Lease

BEATS = 4  # in a lease time: three may be late or fail before anybody may think that the holder is dead


class Heartbeat:
    """Beats for a lease until the context is left. `lost` says that the lease was taken by another: stop training."""

    def __init__(self, beat: Callable[[Lease], None], lease: Lease, seconds: float = LEASE_SECONDS) -> None:
        self._beat, self._lease, self._pause = beat, lease, seconds / BEATS
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name=f"heartbeat-{lease.run}", daemon=True)
        self.lost = False
        self.trouble: StoreError | None = None  # of the last beat, if it failed

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._leave.wait(self._pause):
            try:
                self._beat(self._lease)
                self.trouble = None
            except LeaseLost:
                self.lost = not self._leave.is_set()  # a lease that its holder gives back is not lost
                return
            except StoreError as error:
                self.trouble = error  # a server that is away for a moment: the next beat may get through
