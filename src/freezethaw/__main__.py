"""`python -m freezethaw`."""

import sys

if sys.argv[1:2] == ["worker"]:  # without the command line's libraries: workers start often
    from freezethaw.runtime.local import worker_main

    sys.exit(worker_main(sys.argv[2:]))

from freezethaw.cli import app

app(prog_name="freezethaw")
