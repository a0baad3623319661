"""Run the application with uvicorn."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Sequence

from freezethaw.errors import StoreError
from freezethaw.server.access import LOCAL

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - only on request


def serve(stores: Sequence[str], host: str, port: int, token: str | None, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; `announce` is called with the link to the page."""
    import uvicorn

    from freezethaw.server.application import make_application

    token = token or secrets.token_urlsafe(24)
    listener = _socket(host, port)
    port = listener.getsockname()[1]
    names = {host, socket.gethostname().lower()} if host not in LOCAL else set[str]()
    application = make_application(stores, token, names, any_address=host in EVERYWHERE)
    with contextlib.suppress(OSError):
        os.nice(10)  # a tenth of the share of a training on the same processor
    shown = "127.0.0.1" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    announce(f"http://{shown}:{port}/?token={token}")
    config = uvicorn.Config(application, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


def _socket(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)  # early requests wait instead of being refused
    except OSError as error:
        raise StoreError(
            f"cannot listen on {host}, port {port}: {error.strerror}; --port 0 selects a free port"
        ) from None
    return found
