"""The server as users start it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys


@contextlib.contextmanager
def served(url, *options):
    """`freezethaw dashboard` in a process of its own; gives the link that it prints."""
    command = [sys.executable, "-m", "freezethaw", "dashboard", url, "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = ""
            while "}" not in lines:
                line = process.stdout.readline()
                assert line, "the server did not start"
                lines += line
            yield json.loads(lines)["url"]
        finally:
            process.terminate()
            process.wait(20)
