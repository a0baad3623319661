"""A tenth of `make faults`: real processes, killed, stopped, and with a wrong clock, on both databases."""

from __future__ import annotations

import os
import shutil

import pytest
from benchmarks.faults import audit, scenarios
from benchmarks.faults.worker import Worker
from benchmarks.servers import fresh_database

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")]  # we fork


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request, tmp_path):
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        return lambda: fresh_database(server)
    numbers = iter(range(10_000))
    return lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"


def test_kill_9_at_random(new_url):
    found = scenarios.kills(new_url, 20, seed=1)
    assert found["kills"] >= 20
    assert found["taken_over"] > 0, "no kill hit a worker that held a lease"


def test_a_kill_between_two_writes(new_url, request):
    """Both databases execute the same statements; a new one of PostgreSQL takes longer."""
    stride = 20 if request.node.callspec.params["new_url"] == "postgresql" else 10
    found = scenarios.every_write(new_url, stride, offset=3)
    assert found["kills"] >= 200 // stride


def test_a_worker_that_was_stopped_past_its_lease_cannot_write(new_url):
    assert scenarios.stopped(new_url, 1)["late_writes_refused"] == 1


@pytest.mark.skipif(not shutil.which("faketime") and not os.environ.get("FREEZETHAW_CI"), reason="needs faketime")
def test_a_clock_that_is_an_hour_off_expires_nothing(new_url):
    assert scenarios.moved_clock(new_url)["workers_that_recorded"] == 3


# The auditor itself notices what it should.


@pytest.fixture
def finished(tmp_path):
    with scenarios.fresh(lambda: f"sqlite:///{tmp_path}/x.db", 2, 4, epoch_seconds=0.0) as orders:
        worker = Worker(orders)
        worker.work()
        yield orders, worker


def test_the_auditor_accepts_a_quiet_study(finished):
    orders, _ = finished
    assert audit.audit(orders, 2, 4, kills=0)["trained_again"] == 0


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("DELETE FROM freezethaw_epochs WHERE run = 2 AND epoch = 4", "was acknowledged"),
        ("UPDATE freezethaw_epochs SET loss = loss + 1e-12 WHERE run = 1 AND epoch = 2", "was acknowledged"),
        ("UPDATE freezethaw_runs SET epochs = 3 WHERE run = 1", "counted 3"),
        ("UPDATE freezethaw_decisions SET reason = 'other' WHERE number = 2", "a replay takes"),
        ("UPDATE freezethaw_epochs SET change = 99 WHERE run = 1 AND epoch = 1", "rows, 4 epochs"),
        ("UPDATE freezethaw_decisions SET basis = basis + 1 WHERE number = 2", "a replay takes"),
    ],
)
def test_the_auditor_detects_damage(finished, harm, message):
    orders, worker = finished
    with worker.study._database.writing() as connection:
        connection.exec_driver_sql(harm)
    with pytest.raises(audit.Broken, match=message):
        audit.audit(orders, 2, 4, kills=0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trained 1 1 1", "trained again after 0 kills"),
        ("recorded 1 1 99 {loss} 3", "old token|same change"),
        ("recorded 1 9 1 0x1.0p+0 3", "acknowledged"),
    ],
)
def test_the_auditor_reads_the_logs(finished, line, message):
    orders, worker = finished
    (orders.folder / "1.log").write_text(line.format(loss=worker.study.load().runs[0].losses[0].hex()) + "\n")
    with pytest.raises(audit.Broken, match=message):
        audit.audit(orders, 2, 4, kills=0)
