"""`python -m freezethaw`."""

import sys

if sys.argv[1:3] == ["worker", "--pipe"]:  # without the command line's libraries: workers start often
    from freezethaw.runtime.worker_process import work_from_pipe

    sys.exit(work_from_pipe(sys.argv[3:]))

from freezethaw.cli import app

app(prog_name="freezethaw")
