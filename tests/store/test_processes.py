from __future__ import annotations

import subprocess
import sys
import time

from freezethaw.store import Process
from freezethaw.store.processes import _started


def test_a_killed_child_that_nobody_has_waited_for_is_dead():
    here = Process.current()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = Process(here.host, here.boot, child.pid, _started(child.pid))
    assert not process.is_dead(here)
    child.kill()
    end = time.monotonic() + 10
    while not process.is_dead(here):  # a zombie by now
        assert time.monotonic() < end
        time.sleep(0.01)
    child.wait()
    assert process.is_dead(here)


def test_a_process_knows_itself():
    assert Process.current() == Process.current()
    assert not Process.current().is_dead(Process.current())
