"""The web application: pages for the studies of a store, and an HTTP API for trainers in other languages.

Pages only read, in short transactions. Forecasts are computed in this process, one at a time, from a read-only copy of
the study, and are cached until it changes.
"""

from freezethaw.server.application import make_application
from freezethaw.server.report import report_html
from freezethaw.server.uvicorn_server import serve

__all__ = ["make_application", "report_html", "serve"]
