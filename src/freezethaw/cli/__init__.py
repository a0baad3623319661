"""The command line: one module per command. Heavy libraries are imported only by the command that needs them."""

from freezethaw.cli import (
    best,
    budget,
    check,
    dashboard,
    delete,
    enqueue,
    explain,
    export,
    forecast,
    report,
    run,
    status,
    stop,
    studies,
    worker,
)
from freezethaw.cli.app import app

__all__ = [
    "app",
    "best",
    "budget",
    "check",
    "dashboard",
    "delete",
    "enqueue",
    "explain",
    "export",
    "forecast",
    "report",
    "run",
    "status",
    "stop",
    "studies",
    "worker",
]
