"""The command line. Nothing heavy is imported before a command needs it: `--help` answers at once."""

from freezethaw.cli import asking, forecasting, joining, looking, searching, showing, taking_out
from freezethaw.cli.app import app

__all__ = ["app", "asking", "forecasting", "joining", "looking", "searching", "showing", "taking_out"]
