"""One web application: the page of a store's studies, and the HTTP API for trainers in other languages.

Looking never writes, and holds no transaction longer than a read. Forecasts come from a study that stands still, are
computed in this process, one at a time, and are kept until the study has moved on.
"""

from freezethaw.server.application import make_application
from freezethaw.server.report import report_html
from freezethaw.server.serving import serve

__all__ = ["make_application", "report_html", "serve"]
