"""The job-array script of the examples, under a stand-in for Slurm and on a real PostgreSQL server."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from freezethaw.errors import StudyError
from freezethaw.store import Store
from tests.runtime.slurm import Slurm

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "slurm"
NAME = "slurm-example"
BUDGET = 40


@pytest.fixture
def slurm(tmp_path, postgresql_server):
    """Two tasks on the example, in a copy of its folder."""
    for file in ("study.toml", "train.py"):
        (tmp_path / file).write_text((EXAMPLE / file).read_text())
    with Store(postgresql_server) as store:
        if any(found.name == NAME for found in store.studies()):
            store.delete(NAME)
    environment = {"FREEZETHAW_STORE": postgresql_server, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    arguments = ["study.toml", "--budget", str(BUDGET)]
    found = Slurm(tmp_path, EXAMPLE / "array.sh", arguments, 2, environment)
    yield found
    found.cancel()


def seen(url):
    with Store(url) as store:
        try:
            study = store.open(NAME)
        except StudyError:
            return 0, ()
        return sum(run.epoch for run in study.load().runs), study.events()


def until(true, slurm):
    while not true():
        assert slurm.update() or true(), slurm.output()
        time.sleep(0.1)


def test_time_limits_and_pre_emptions_cost_nothing_and_a_lost_node_little(slurm, postgresql_server):
    for epochs, task, number in ((8, 1, signal.SIGUSR1), (14, 2, signal.SIGTERM), (20, 1, signal.SIGKILL)):
        until(lambda: seen(postgresql_server)[0] >= epochs, slurm)
        slurm.send(task, number)
    until(lambda: not slurm.update(), slurm)
    epochs, events = seen(postgresql_server)
    assert epochs == BUDGET, slurm.output()
    assert sorted(slurm.codes) == [0, 0, 3, 3], slurm.output()
    trained = re.findall("^at ", slurm.output(), re.MULTILINE)  # what the training prints after each epoch
    assert BUDGET <= len(trained) <= BUDGET + 5, "more than `every` epochs were trained again after one kill"
    assert not [event for event in events if event.kind == "run failed"]
