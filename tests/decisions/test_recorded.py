"""Decisions of recorded studies: a function of what was told, the seed and the number, which never change unnoticed."""

from __future__ import annotations

import json

import pytest

from tests.decisions.scenarios import FILE, SCENARIOS, record

RECORDED = json.loads(FILE.read_text())
IN_A_FILE = {"plain", "diverging", "pending", "requests", "raised_budget", "added"}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_decisions_in_memory(scenario):
    compare(record(scenario, None), RECORDED[scenario.__name__])


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if s.__name__ in IN_A_FILE], ids=lambda s: s.__name__)
def test_decisions_in_a_file(scenario, tmp_path):
    compare(record(scenario, f"sqlite:///{tmp_path}/study.db"), RECORDED[scenario.__name__])


def compare(found, wanted):
    """All decisions, and the numbers in them up to rounding: processors add up in another order."""
    assert len(found) == len(wanted)
    for number, (now, before) in enumerate(zip(found, wanted, strict=True), 1):
        assert {k: now[k] for k in ("run", "kind", "from", "to", "reason")} == {
            k: before[k] for k in ("run", "kind", "from", "to", "reason")
        }, f"decision {number}"
        assert set(now["config"]) == set(before["config"]), f"decision {number}"
        for name, value in before["config"].items():
            same = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            assert now["config"][name] == same, f"{name} of decision {number}"
