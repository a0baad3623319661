"""What every store does, whatever database is underneath. The subclasses say which."""

from __future__ import annotations

from tests.store.contract_of_history import HistoryContract
from tests.store.contract_of_leases import LeasesContract
from tests.store.contract_of_losses import LossesContract
from tests.store.contract_of_studies import StudiesContract


class StoreContract(StudiesContract, LossesContract, LeasesContract, HistoryContract):
    """Needs a fixture `url` of an empty store."""
