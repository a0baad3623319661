"""The Starlette application: pages, the API, server-sent events and static files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from freezethaw import __version__
from freezethaw.errors import FreezeThawError, LeaseLost, StoreError
from freezethaw.figures import STUDY_FIGURES
from freezethaw.plain import plain
from freezethaw.server import comparison_page, pages, run_page, study_page
from freezethaw.server.access import TokenMiddleware
from freezethaw.server.actions import ACTIONS, act
from freezethaw.server.api import OPERATIONS, Operation, integer, openapi
from freezethaw.server.views import NotFound, StoreView, StudyView, url_key

POLL_SECONDS, KEEP_ALIVE_SECONDS = 1.0, 15.0  # of event streams
MAX_BODY = 1_000_000  # bytes
STATIC = Path(__file__).parent / "static"
FILES = {"page.css": "text/css", "page.js": "text/javascript"}
Endpoint = Callable[[Request], Awaitable[Response]]


def make_application(url: str, token: str, hosts: Collection[str] = (), any_address: bool = False) -> TokenMiddleware:
    """The application for one store; every request needs the token."""
    store = StoreView(url)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        store.close()

    routes = [Route(o.path, _operation(store, o), methods=[o.method]) for o in OPERATIONS]
    routes += [
        Route("/api/openapi.json", _document),
        Route("/api/studies/{study}/figures/{figure}", _figure(store)),
        Route("/api/studies/{study}/stream", _stream(store, _one)),
        Route("/api/compare/stream", _stream(store, _several)),
        Route("/api/compare/comparison", _comparison(store)),
        Route("/static/{file}", _static),
        Route("/", _page(store, pages.studies_page)),
        Route("/compare", _page(store, comparison_page.page)),
        Route("/compare/live", _page(store, comparison_page.live)),
        Route("/studies/{study}", _page(store, study_page.page)),
        Route("/studies/{study}/live", _page(store, study_page.live)),
        Route("/studies/{study}/runs/{run}", _page(store, run_page.page)),
        Route("/studies/{study}/decisions/{number}", _page(store, pages.decision_page)),
        Route("/studies/{study}/{action}", _form(store), methods=["POST"]),
    ]
    return TokenMiddleware(Starlette(routes=routes, lifespan=lifespan), token, hosts, any_address)


def status_of(error: FreezeThawError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, LeaseLost):
        return 409
    return 503 if isinstance(error, StoreError) else 400


def _operation(store: StoreView, operation: Operation) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            parameters = _query(request) | await _body(request, operation) | dict(request.path_params)
            return JSONResponse(plain(await run_in_threadpool(operation.handle, store, parameters)))
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))

    return endpoint


def _query(request: Request) -> dict[str, Any]:
    """The query parameters; `among` may be repeated."""
    return dict(request.query_params) | {"among": request.query_params.getlist("among")}


async def read_body(request: Request) -> bytes:
    """The body of a request, limited in size whatever its Content-Length."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > MAX_BODY:
            raise FreezeThawError(f"the request is larger than {MAX_BODY} bytes")
    return bytes(found)


async def _body(request: Request, operation: Operation) -> dict[str, Any]:
    if operation.method == "GET" or not operation.body:
        return {}
    try:
        found = json.loads(await read_body(request))
    except (ValueError, RecursionError):
        raise FreezeThawError("the request body is not valid JSON") from None
    if not isinstance(found, dict):
        raise FreezeThawError("the request body must be a JSON object")
    unknown = [key for key in found if key not in operation.body]
    if unknown:
        raise FreezeThawError(f"unknown entry {unknown[0]!r}; known entries: {', '.join(operation.body)}")
    missing = [key for key in operation.required if key not in found]
    if missing:
        raise FreezeThawError(f"missing entries: {', '.join(missing)}")
    return found


async def _document(_: Request) -> Response:
    return JSONResponse(openapi(__version__))


def _figure(store: StoreView) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        name, options = request.path_params["figure"], dict[str, Any]()
        try:
            view = await run_in_threadpool(store.study, request.path_params["study"])
            if name not in STUDY_FIGURES:
                raise NotFound(f"there is no figure {name!r}; there are {', '.join(STUDY_FIGURES)}")
            if name == "best_loss" and request.query_params.get("against") in ("hours", "cost"):
                options["against"] = request.query_params["against"]
            if name == "basket" and "number" in request.query_params:
                options["number"] = integer(request.query_params, "number")
            if name == "curves" and "run" in request.query_params:
                options |= {"runs": (integer(request.query_params, "run"),), "others": 40}
            if name == "curves" and request.query_params.get("forecasts") == "no":
                options["forecasts"] = False
            change, text = await run_in_threadpool(view.figure, name, options)
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))
        return _figure_response(request, change, text)

    return endpoint


def _comparison(store: StoreView) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            change, text = await run_in_threadpool(comparison_page.figure, store, _query(request))
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))
        return _figure_response(request, change, text)

    return endpoint


def _figure_response(request: Request, change: int, text: str) -> Response:
    """A figure, or status 304 if the browser has it."""
    tag = f'"{change}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="application/json", headers=headers)


def _one(store: StoreView, request: Request) -> list[StudyView]:
    return [store.study(request.path_params["study"])]


def _several(store: StoreView, request: Request) -> list[StudyView]:
    return comparison_page.selected(store, _query(request))


def _stream(store: StoreView, which: Callable[[StoreView, Request], list[StudyView]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            view = await run_in_threadpool(which, store, request)
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))

        def current() -> int:
            return sum(one.change() for one in view)

        async def changes() -> AsyncIterator[str]:
            last, silent = -1, 0.0
            while not await request.is_disconnected():
                try:
                    change = await run_in_threadpool(current)
                except FreezeThawError:  # deleted or temporarily unavailable: the page reconnects
                    return
                if change != last:
                    last, silent = change, 0.0
                    yield f"event: change\ndata: {change}\n\n"
                elif silent >= KEEP_ALIVE_SECONDS:
                    silent = 0.0
                    yield ": keep-alive\n\n"
                await asyncio.sleep(POLL_SECONDS)
                silent += POLL_SECONDS

        return StreamingResponse(changes(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    return endpoint


@cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()


async def _static(request: Request) -> Response:
    file = request.path_params["file"]
    headers = {"Cache-Control": "private, max-age=86400"}
    if file == "plotly.js":
        script = await run_in_threadpool(_plotly)
        return Response(
            script, media_type="text/javascript", headers=headers | {"Cache-Control": "private, max-age=604800"}
        )
    if file not in FILES:  # a fixed list: no path from a request is opened
        return Response("not found", 404, media_type="text/plain")
    return Response((STATIC / file).read_bytes(), media_type=FILES[file], headers=headers)


def _page(store: StoreView, page: Callable[[StoreView, dict[str, Any]], str]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        parameters = _query(request) | dict(request.path_params)
        try:
            return HTMLResponse(await run_in_threadpool(page, store, parameters))
        except FreezeThawError as error:
            return HTMLResponse(pages.error_page(str(error)), status_of(error))

    return endpoint


def _form(store: StoreView) -> Endpoint:
    """Handle a form of a page: act, then redirect to the page or answer in JSON."""

    async def endpoint(request: Request) -> Response:
        action = request.path_params["action"]
        try:
            fields = dict(parse_qsl((await read_body(request)).decode("utf-8", "replace"), keep_blank_values=True))
            view = await run_in_threadpool(store.study, request.path_params["study"])
            if action not in ACTIONS:
                raise NotFound("there is no such action")
            message = await run_in_threadpool(act, view, action, fields)
        except FreezeThawError as error:
            if request.headers.get("accept", "").startswith("application/json"):
                return JSONResponse({"error": str(error)}, status_of(error))
            return HTMLResponse(pages.error_page(str(error)), status_of(error))
        if request.headers.get("accept", "").startswith("application/json"):
            return JSONResponse({"done": message})
        return RedirectResponse(f"/studies/{url_key(view.stored)}", 303)

    return endpoint
