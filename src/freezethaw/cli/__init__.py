"""The command line: one module per command. Heavy libraries are imported only by the command that needs them."""

from freezethaw.cli import best, check, dashboard, explain, export, forecast, report, run, status, studies, worker
from freezethaw.cli.app import app

__all__ = [
    "app",
    "best",
    "check",
    "dashboard",
    "explain",
    "export",
    "forecast",
    "report",
    "run",
    "status",
    "studies",
    "worker",
]
