from __future__ import annotations

import pytest

from freezethaw.store import MemoryStorage, memory
from tests.store.contract import StorageContract
from tests.store.small_study import InMemory, decide, definition


class TestMemory(StorageContract):
    @pytest.fixture
    def url(self):
        return InMemory()


def test_baskets_and_samples_of_old_decisions_are_forgotten(monkeypatch):
    monkeypatch.setattr(memory, "KEPT", 3)
    study = MemoryStorage("study", definition())
    for number in range(1, 8):
        study.record(decide(study, state={"n": number}).lease, close="interrupted")
    assert study.samples() == {"n": 7}
    assert study.samples(before=6) == {"n": 5}
    assert study.samples(before=4) is None
