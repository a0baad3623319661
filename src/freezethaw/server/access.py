"""Who may ask: a token on every route and verb, known hosts only, and headers that allow no foreign script.

A pure ASGI layer around the whole application, so that no route can forget it.
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
    # plotly sets styles of its elements; scripts come from here only, and nothing is evaluated
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Lets requests through that show the token, as `?token=` once, as a cookie after that, or as a bearer."""

    def __init__(self, application: ASGIApp, token: str, hosts: Collection[str], any_address: bool = False) -> None:
        self.application, self.token = application, token
        self.hosts, self.any_address = frozenset(hosts) | LOCAL, any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.application(scope, receive, send)
            return
        refusal = self._refusal(scope)
        guarded = _with_headers(send)
        if refusal is not None:
            await refusal(scope, receive, guarded)
        else:
            await self.application(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._known(headers.get("host", "")):
            return PlainTextResponse("this name is not one of this server", 421)
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
                return PlainTextResponse("requests from other pages are refused", 403)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        if scope["method"] == "GET" and self._right(query.get("token", "")):
            return self._welcome(scope, query)
        bearer = headers.get("authorization", "")
        given = bearer[7:] if bearer.lower().startswith("bearer ") else ""
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        if self._right(given) or self._right(cookie):
            return None
        message = "a token is needed: open the link that `freezethaw dashboard` printed, or send it as a bearer"
        if scope["path"].startswith("/api/"):
            return JSONResponse({"error": message}, 401, {"WWW-Authenticate": "Bearer"})
        return PlainTextResponse(message, 401, {"WWW-Authenticate": "Bearer"})

    def _right(self, given: str) -> bool:
        return bool(given) and secrets.compare_digest(given.encode(), self.token.encode())

    def _known(self, host: str) -> bool:
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

    def _welcome(self, scope: Scope, query: dict[str, str]) -> Response:
        """A cookie in place of the token, which disappears from the address."""
        rest = urlencode({key: value for key, value in query.items() if key != "token"})
        path = "/" + scope["path"].lstrip("/")  # not //elsewhere
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict", path="/")
        return answer


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
