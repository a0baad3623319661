"""The Starlette application: pages, the API, server-sent events and static files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
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
from freezethaw.server.runs_table import RunsTable, Selection
from freezethaw.server.views import NotFound, StoreView, StudyView

POLL_SECONDS, KEEP_ALIVE_SECONDS = 0.5, 15.0  # of event streams
MAX_BODY = 1_000_000  # bytes
STATIC = Path(__file__).parent / "static"
FILES = {"page.css": "text/css", "page.js": "text/javascript"}
Endpoint = Callable[[Request], Awaitable[Response]]


def make_application(
    stores: str | Sequence[str], token: str, hosts: Collection[str] = (), any_address: bool = False
) -> TokenMiddleware:
    """The application for one or more stores; every request needs the token."""
    store = StoreView(stores)

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
        Route("/studies/{study}", _page(store, study_page.page_of(""))),
        *(
            Route(f"/studies/{{study}}/{section}", _page(store, study_page.page_of(section)))
            for section in study_page.SECTIONS
            if section
        ),
        Route("/studies/{study}/runs.csv", _csv(store)),
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
    """The query parameters; `among` and `column` may be repeated."""
    found = request.query_params
    return dict(found) | {name: found.getlist(name) for name in ("among", "column")}


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
        name = request.path_params["figure"]
        try:
            view = await run_in_threadpool(store.study, request.path_params["study"])
            if name not in STUDY_FIGURES:
                raise NotFound(f"there is no figure {name!r}; there are {', '.join(STUDY_FIGURES)}")
            options = figure_options(name, request.query_params)
            version, text = await run_in_threadpool(view.figure, name, options)
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))
        return _figure_response(request, version, text)

    return endpoint


MAX_HIGHLIGHTED = 20  # runs of one figure
ALLOWED: dict[str, dict[str, tuple[str, ...]]] = {  # options of figures: their values
    "best_loss": {"against": ("epochs", "hours", "cost")},
    "curves": {"shown": ("1", "5", "10", "20", "50"), "forecasts": ("yes", "no")},
    "replay": {"forecasts": ("yes", "no")},
}


def figure_options(name: str, query: Mapping[str, str]) -> dict[str, Any]:
    """The options of a figure, from the query of its URL; other values are ignored."""
    found: dict[str, Any] = {
        key: query[key] for key, values in ALLOWED.get(name, {}).items() if query.get(key) in values
    }
    if "shown" in found:
        found["shown"] = int(found["shown"])
    if "forecasts" in found:
        found["forecasts"] = found["forecasts"] == "yes"
    if name == "replay":
        found.setdefault("forecasts", False)  # those of all decisions take seconds
    if name == "basket" and "number" in query:
        found["number"] = integer(query, "number")
    if name == "curves" and "run" in query:
        found |= {"runs": (integer(query, "run"),), "others": 40}
    elif name == "curves" and query.get("runs", "").strip():
        numbers = query["runs"].replace(",", " ").split()
        found["runs"] = tuple(integer({"runs": number}, "runs", least=0) for number in numbers[:MAX_HIGHLIGHTED])
    if name == "slices" and query.get("columns") == "2":
        found["columns"] = 2
    if name == "parameter_map":
        found |= {key: query[key] for key in ("x", "y") if query.get(key)}
    return found


def _csv(store: StoreView) -> Endpoint:
    def written(parameters: dict[str, Any]) -> str:
        return RunsTable(store.study(parameters["study"]), Selection.of(parameters)).as_csv()

    async def endpoint(request: Request) -> Response:
        try:
            text = await run_in_threadpool(written, _query(request) | dict(request.path_params))
        except FreezeThawError as error:
            return HTMLResponse(pages.error_page(str(error)), status_of(error))
        return Response(text, media_type="text/csv", headers={"Content-Disposition": 'attachment; filename="runs.csv"'})

    return endpoint


def _comparison(store: StoreView) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            change, text = await run_in_threadpool(comparison_page.figure, store, _query(request))
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))
        return _figure_response(request, str(change), text)

    return endpoint


def _figure_response(request: Request, version: str, text: str) -> Response:
    """A figure, or status 304 if the browser has it."""
    tag = f'"{version}"'
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
        return RedirectResponse(f"/studies/{view.key}", 303)

    return endpoint
