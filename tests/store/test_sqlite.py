from __future__ import annotations

import pytest

from tests.store.contract import StoreContract


class TestSqlite(StoreContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'study.db'}"
