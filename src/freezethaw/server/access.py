"""Access control: a token for every request, known host names only, and restrictive security headers.

This is ASGI middleware around the whole application, so it applies to every route.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "freezethaw"
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    # plotly sets inline styles; scripts are served from here only, and eval is not allowed
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class TokenMiddleware:
    """Accepts requests with the token: as `?token=` once, then as a cookie, or as a bearer token."""

    def __init__(self, application: ASGIApp, token: str, hosts: Collection[str], any_address: bool = False) -> None:
        self.application, self.token = application, token
        self.hosts, self.any_address = frozenset(hosts) | LOCAL, any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.application(scope, receive, send)
            return
        rejection = self._rejection(scope)
        with_headers = _add_headers(send)
        if rejection is not None:
            await rejection(scope, receive, with_headers)
        else:
            await self.application(scope, receive, with_headers)

    def _rejection(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._known_host(headers.get("host", "")):
            return PlainTextResponse("unknown host", 421)
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
                return PlainTextResponse("cross-origin requests are not allowed", 403)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        if scope["method"] == "GET" and self._valid(query.get("token", "")):
            return self._set_cookie(scope, query)
        bearer = headers.get("authorization", "")
        given = bearer[7:] if bearer.lower().startswith("bearer ") else ""
        cookie = cookie_parser(headers.get("cookie", "")).get(cookie_name(headers.get("host", "")), "")
        if self._valid(given) or self._valid(cookie):
            return None
        message = "a token is required: open the link that `freezethaw dashboard` printed, or send it as a bearer token"
        if scope["path"].startswith("/api/"):
            return JSONResponse({"error": message}, 401, {"WWW-Authenticate": "Bearer"})
        return PlainTextResponse(message, 401, {"WWW-Authenticate": "Bearer"})

    def _valid(self, given: str) -> bool:
        return bool(given) and secrets.compare_digest(given.encode(), self.token.encode())

    def _known_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name.lower() in self.hosts:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _set_cookie(self, scope: Scope, query: dict[str, str]) -> Response:
        """Set the cookie and redirect to the URL without the token."""
        rest = urlencode({key: value for key, value in query.items() if key != "token"})
        path = "/" + scope["path"].lstrip("/")  # never a protocol-relative URL such as //example.org
        response = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        name = cookie_name(Headers(scope=scope).get("host", ""))
        response.set_cookie(name, self.token, httponly=True, samesite="strict", path="/")
        return response


def cookie_name(host: str) -> str:
    """Browsers send cookies to all ports of a host, so that each dashboard has a name of its own."""
    port = urlsplit(f"//{host}").netloc.rpartition("]")[2].rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isascii() and port.isdigit() else COOKIE


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with_headers
