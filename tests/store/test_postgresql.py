from __future__ import annotations

import pytest
from benchmarks.servers import fresh_database

from freezethaw.errors import StoreError
from freezethaw.store import Store, rows
from tests.store.contract import StoreContract
from tests.store.small_study import opened


class TestPostgresql(StoreContract):
    @pytest.fixture
    def url(self, postgresql_server):
        return fresh_database(postgresql_server)

    def test_a_client_that_was_stopped_within_a_transaction_does_not_block_others_for_ever(self, url):
        study = opened(url)

        def stop():
            with Store(url, wait=2.0)._database.writing() as connection:
                rows.lock_study(connection, 1)
                study.add_event("note", "gets through once the server has ended the other's session")

        with pytest.raises(StoreError, match="idle-in-transaction timeout"):
            stop()
        assert [event.kind for event in study.events()] == ["note"]
