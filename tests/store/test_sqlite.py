from __future__ import annotations

from pathlib import Path

import pytest

from freezethaw.store import Store
from tests.store.contract import StoreContract
from tests.store.small_study import definition


class TestSqlite(StoreContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'study.db'}"


def test_a_store_is_a_url_or_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("a.db", Path("b.db"), tmp_path / "c.db", f"sqlite:///{tmp_path}/d.db"):
        with Store(place) as store:
            store.create_or_open("study", definition())
    assert [file.name for file in sorted(tmp_path.glob("*.db"))] == ["a.db", "b.db", "c.db", "d.db"]
