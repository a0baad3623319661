from __future__ import annotations

import pytest
from benchmarks.servers import fresh_database

from tests.store.contract import StoreContract


class TestPostgresql(StoreContract):
    @pytest.fixture
    def url(self, postgresql_server):
        return fresh_database(postgresql_server)
