"""What every storage does, in memory and in each database. The subclasses say which."""

from __future__ import annotations

from tests.store.contract_of_databases import DatabaseContract
from tests.store.contract_of_history import HistoryContract
from tests.store.contract_of_leases import LeasesContract
from tests.store.contract_of_losses import LossesContract
from tests.store.contract_of_studies import StudiesContract


class StorageContract(LossesContract, LeasesContract, HistoryContract):
    """Needs a fixture `url`: of an empty store, or a place in memory."""


class StoreContract(StorageContract, StudiesContract, DatabaseContract):
    """Needs a fixture `url` of an empty store."""
