"""Which process holds a lease, and whether it is surely dead: also where the system says little."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freezethaw.store import Process, storage
from freezethaw.store.storage import _started


@pytest.fixture(params=["this system", "macOS"])
def system(request, monkeypatch):
    """The code for macOS asks `ps`, which other systems have as well."""
    if request.param == "macOS":
        if not Path("/bin/ps").exists():
            pytest.skip("there is no /bin/ps here")
        monkeypatch.setattr(storage, "_boot", lambda: "one boot")
        monkeypatch.setattr(storage.sys, "platform", "darwin")
    return request.param


@pytest.mark.usefixtures("system")
def test_a_killed_child_that_nobody_has_waited_for_is_dead():
    here = Process.current()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = Process(here.host, here.boot, child.pid, _started(child.pid))
    assert not process.is_dead(here)
    child.kill()
    while not process.is_dead(here):  # a zombie by now
        time.sleep(0.01)
    child.wait()
    assert process.is_dead(here)


@pytest.mark.usefixtures("system")
def test_a_process_knows_itself():
    assert Process.current() == Process.current()
    assert not Process.current().is_dead(Process.current())


@pytest.mark.usefixtures("system")
def test_a_reused_process_number_does_not_count_as_the_first_process():
    here = Process.current()
    assert Process(here.host, here.boot, os.getpid(), "long before").is_dead(here)
    assert not Process(here.host, "another boot", os.getpid(), "long before").is_dead(here), "it cannot be looked up"
    assert not Process(here.host, here.boot, os.getpid(), "").is_dead(here), "nor distinguished from another"


def test_if_the_boot_is_unknown_no_process_is_considered_dead(monkeypatch):
    def no_proc(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", no_proc)
    here = Process.current()
    assert (here.boot, here.started) == ("", "")
    assert not Process(here.host, "", 2**22 + 1, "").is_dead(here)


def test_on_macos_the_boot_is_read_with_sysctl(monkeypatch):
    asked = []
    monkeypatch.setattr(storage.sys, "platform", "darwin")
    monkeypatch.setattr(storage, "_output", lambda *command: asked.append(command) or "A-B-C")
    assert storage._boot() == "A-B-C"
    assert asked == [("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")]
