"""What every database does: processes share it, a newer one is refused, and readers and writers do not block others."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from freezethaw.errors import StoreError, StudyError
from freezethaw.store import Store, Watcher, leases
from freezethaw.store.storage import Process
from tests.store.small_study import CONFIG, add_run, decide, definition, opened, report, take_over, tickets

ROOT = Path(__file__).parents[2]


class DatabaseContract:
    """Needs a fixture `url` of an empty store."""

    def test_an_imported_study_is_saved_completely_and_continues(self, url):
        store = Store(url)
        origin = store.create_or_open("origin", definition(max_epochs=4))
        origin.record(decide(origin, to_epoch=4).lease, report(1, 4.0, 3.0, seconds=(0.5, math.nan)), close="told")
        origin.record(decide(origin, to_epoch=2).lease, report(1, 9.0), close="diverged")
        origin.record(decide(origin, to_epoch=2).lease, close="out_of_memory")
        origin.record(decide(origin, to_epoch=2).lease, close="interrupted")
        add_run(origin, CONFIG, [2.0, 1.0])
        again = decide(origin, run=1, to_epoch=4)
        fresh = decide(origin, to_epoch=3, state={"a": [0.5]})
        origin.record(again.lease, report(3, 2.0))
        origin.request(None, CONFIG, 2)
        origin.request(4, None, 3)
        then = origin.load()
        copy, leases = store.save("copy", then, origin.samples())
        now = copy.load()
        assert repr((now.runs, now.pending, now.decisions, now.definition)) == repr(
            (then.runs, then.pending, then.decisions, then.definition)
        )
        assert [(w.run, w.config, w.to_epoch) for w in now.requests] == [
            (w.run, w.config, w.to_epoch) for w in then.requests
        ]
        assert copy.samples() == {"a": [0.5]}
        assert set(leases) == {again.decision.number, fresh.decision.number}
        copy.record(leases[again.decision.number], report(4, 1.0), close="told")
        copy.record(leases[fresh.decision.number], close="interrupted")
        assert decide(copy, to_epoch=4).decision.number == then.decisions + 1
        past = copy.load(at=now.change)
        assert repr((past.runs, past.pending, past.decisions)) == repr((then.runs, then.pending, then.decisions))
        with pytest.raises(StudyError, match=r"a study 'copy' in .* already"):
            store.save("copy", then)
        with pytest.raises(StudyError, match="1 decisions cannot have led to these runs"):
            store.save("third", replace(then, decisions=1))
        assert [info.name for info in store.studies()] == ["origin", "copy"]

    def test_many_writers_at_once_all_get_through(self, url):
        names = [f"writer {number}" for number in range(6)]
        opened(url)

        def write(name):
            study = Store(url).open("study")
            for number in range(15):
                study.add_event(name, str(number))

        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        [t.start() for t in threads]
        [t.join() for t in threads]
        found = opened(url).events()
        for name in names:
            assert [e.text for e in found if e.kind == name] == [str(number) for number in range(15)]
        assert opened(url).load().change == 90

    def test_a_newer_schema_is_refused(self, url):
        store = Store(url)
        with store._database.writing() as connection:
            connection.exec_driver_sql("UPDATE freezethaw_meta SET value = '99'")
        with pytest.raises(StoreError, match=r"newer freezethaw \(schema version 99; this one knows 4\)"):
            Store(url)

    def test_a_reader_that_stays_open_stops_nobody(self, url):
        study = opened(url)
        lease = decide(study).lease
        with Store(url)._database.reading() as connection:
            count = "SELECT count(*) FROM freezethaw_epochs"
            assert connection.exec_driver_sql(count).scalar() == 0
            study.record(lease, report(1, 1.0, 2.0))
            assert connection.exec_driver_sql(count).scalar() == 0  # one consistent view
        assert len(study.load().runs[0].losses) == 2

    def test_a_dead_process_of_this_machine_loses_its_lease_at_once(self, url):
        code = (
            "import os, sys\n"
            "from tests.store.small_study import decide, opened\n"
            "study = opened(sys.argv[1])\n"
            "decide(study)\n"
            "from freezethaw.store import Watcher\n"
            "assert study.acquire_decision_lease(Watcher())\n"
            "os.kill(os.getpid(), 9)\n"
        )
        killed = subprocess.run([sys.executable, "-c", code, url], env=os.environ, check=False, cwd=ROOT)
        assert killed.returncode == -9
        study = opened(url)
        assert [lease.held for lease in study.leases()] == [True, True]
        watcher = Watcher(3600.0)
        assert take_over(study, watcher).lease.token == 2
        assert study.acquire_decision_lease(watcher).token == 3
        assert [e.kind for e in study.events()] == ["lease taken over"] * 2

    def test_a_dead_or_stopped_process_in_the_queue_blocks_nobody(self, url, monkeypatch):
        code = (
            "import sys, time\n"
            "from tests.store.small_study import opened\n"
            "from freezethaw.store import Watcher\n"
            "study = opened(sys.argv[1])\n"
            "print('asks', flush=True)\n"
            "study.wait_for_decision_lease(Watcher(), time.sleep)\n"
            "print('decides', flush=True)\n"
        )
        study = opened(url)
        held = study.acquire_decision_lease(Watcher())
        command = [sys.executable, "-c", code, url]
        waiting = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(2)]
        try:
            for process in waiting:
                assert process.stdout.readline() == b"asks\n"
            while tickets(url) < 2:
                time.sleep(0.05)
            waiting[0].kill()
            waiting[0].wait()
            waiting[1].send_signal(signal.SIGSTOP)
            monkeypatch.setattr(leases, "TICKET_TIMEOUT", 0.5)
            study.release(held)
            lease = opened(url).wait_for_decision_lease(Watcher(), time.sleep)  # asked last
            waiting[1].send_signal(signal.SIGCONT)
            time.sleep(0.2)
            study.release(lease)
            assert waiting[1].stdout.readline() == b"decides\n"
            assert waiting[1].wait() == 0
            assert tickets(url) == 0
        finally:
            for process in waiting:
                process.kill()
                process.wait()
                process.stdout.close()

    @pytest.mark.parametrize("living", [0, 2, 9])
    def test_the_dead_in_a_long_queue_are_not_waited_for(self, url, living):
        study, here = opened(url), Process.current()
        database, number = study._database, study._study
        with database.writing() as connection:
            entered = [leases.enter_queue(connection, number, here) for _ in range(7 + living + 1)]
        with database.writing() as connection:  # the first ones die
            connection.exec_driver_sql(f"UPDATE freezethaw_queue SET started = 'never' WHERE ticket <= {entered[6]}")
        with database.reading() as connection:
            _, ahead, count = leases._look(connection, number, entered[-1], here)
            assert ahead == entered[7:-1]
            assert count == living
            assert leases.next_ticket(connection, number, here) == entered[7]
            _, ahead, count = leases._look(connection, number, entered[6], here)
            assert (ahead, count) == ([], 0)
