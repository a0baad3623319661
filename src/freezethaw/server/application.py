"""The application: pages, the API, server-sent events, and the few files that pages need."""

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
from freezethaw.figures import OF_A_STUDY
from freezethaw.plain import plain
from freezethaw.server import comparing, pages, run_page, study_page
from freezethaw.server.access import Guard
from freezethaw.server.actions import ACTIONS, act
from freezethaw.server.api import OPERATIONS, Operation, openapi, whole
from freezethaw.server.watching import Library, Unknown, Watched, address_of

PAUSE, ALIVE = 1.0, 15.0  # seconds between two looks at a study that somebody watches, and between signs of life
LARGEST = 1_000_000  # bytes of a request
STATIC = Path(__file__).parent / "static"
FILES = {"page.css": "text/css", "page.js": "text/javascript"}
Endpoint = Callable[[Request], Awaitable[Response]]


def make_application(url: str, token: str, hosts: Collection[str] = (), any_address: bool = False) -> Guard:
    """The application for one store; every request must show the token."""
    library = Library(url)

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        yield
        library.close()

    routes = [Route(o.path, _operation(library, o), methods=[o.method]) for o in OPERATIONS]
    routes += [
        Route("/api/openapi.json", _document),
        Route("/api/studies/{study}/figures/{figure}", _figure(library)),
        Route("/api/studies/{study}/stream", _stream(library, _one)),
        Route("/api/compare/stream", _stream(library, _several)),
        Route("/api/compare/comparison", _comparison(library)),
        Route("/static/{file}", _static),
        Route("/", _page(library, pages.list_of_studies)),
        Route("/compare", _page(library, comparing.page)),
        Route("/compare/live", _page(library, comparing.live)),
        Route("/studies/{study}", _page(library, study_page.page)),
        Route("/studies/{study}/live", _page(library, study_page.live)),
        Route("/studies/{study}/runs/{run}", _page(library, run_page.page)),
        Route("/studies/{study}/decisions/{number}", _page(library, pages.decision)),
        Route("/studies/{study}/{action}", _form(library), methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes, lifespan=life), token, hosts, any_address)


def status_of(error: FreezeThawError) -> int:
    """The HTTP status that an error is told with."""
    if isinstance(error, Unknown):
        return 404
    if isinstance(error, LeaseLost):
        return 409
    return 503 if isinstance(error, StoreError) else 400


def _operation(library: Library, operation: Operation) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            asked = _query(request) | await _body(request, operation) | dict(request.path_params)
            return JSONResponse(plain(await run_in_threadpool(operation.answer, library, asked)))
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))

    return endpoint


def _query(request: Request) -> dict[str, Any]:
    """What follows the question mark; studies to compare may be named several times."""
    return dict(request.query_params) | {"among": request.query_params.getlist("among")}


async def content(request: Request) -> bytes:
    """What a request brings, as long as it is not too much, whatever it says of its length."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > LARGEST:
            raise FreezeThawError(f"the request is larger than {LARGEST} bytes")
    return bytes(found)


async def _body(request: Request, operation: Operation) -> dict[str, Any]:
    if operation.method == "GET" or not operation.body:
        return {}
    try:
        found = json.loads(await content(request))
    except (ValueError, RecursionError):
        raise FreezeThawError("the request's body is no JSON") from None
    if not isinstance(found, dict):
        raise FreezeThawError("the request's body must be a JSON object")
    unknown = [key for key in found if key not in operation.body]
    if unknown:
        raise FreezeThawError(f"unknown entry {unknown[0]!r}; known are {', '.join(operation.body)}")
    missing = [key for key in operation.required if key not in found]
    if missing:
        raise FreezeThawError(f"the request lacks {', '.join(missing)}")
    return found


async def _document(_: Request) -> Response:
    return JSONResponse(openapi(__version__))


def _figure(library: Library) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        name, options = request.path_params["figure"], dict[str, Any]()
        try:
            watched = await run_in_threadpool(library.watched, request.path_params["study"])
            if name not in OF_A_STUDY:
                raise Unknown(f"there is no figure {name!r}; there are {', '.join(OF_A_STUDY)}")
            if name == "best_loss" and request.query_params.get("against") in ("hours", "cost"):
                options["against"] = request.query_params["against"]
            if name == "basket" and "number" in request.query_params:
                options["number"] = whole(request.query_params, "number")
            if name == "curves" and "run" in request.query_params:
                options |= {"runs": (whole(request.query_params, "run"),), "others": 40}
            if name == "curves" and request.query_params.get("forecasts") == "no":
                options["forecasts"] = False
            change, text = await run_in_threadpool(watched.figure, name, options)
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))
        return _drawn(request, change, text)

    return endpoint


def _comparison(library: Library) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            change, text = await run_in_threadpool(comparing.figure, library, _query(request))
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))
        return _drawn(request, change, text)

    return endpoint


def _drawn(request: Request, change: int, text: str) -> Response:
    """A figure, unless the page has it already."""
    tag = f'"{change}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="application/json", headers=headers)


def _one(library: Library, request: Request) -> list[Watched]:
    return [library.watched(request.path_params["study"])]


def _several(library: Library, request: Request) -> list[Watched]:
    return comparing.among(library, _query(request))


def _stream(library: Library, which: Callable[[Library, Request], list[Watched]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            watched = await run_in_threadpool(which, library, request)
        except FreezeThawError as error:
            return JSONResponse({"error": str(error)}, status_of(error))

        def present() -> int:
            return sum(one.change() for one in watched)

        async def changes() -> AsyncIterator[str]:
            last, silent = -1, 0.0
            while not await request.is_disconnected():
                try:
                    change = await run_in_threadpool(present)
                except FreezeThawError:  # deleted, or away for a moment: the page asks again by itself
                    return
                if change != last:
                    last, silent = change, 0.0
                    yield f"event: change\ndata: {change}\n\n"
                elif silent >= ALIVE:
                    silent = 0.0
                    yield ": alive\n\n"
                await asyncio.sleep(PAUSE)
                silent += PAUSE

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
    if file not in FILES:  # a closed list: nothing that a request names is looked for on the disk
        return Response("not here", 404, media_type="text/plain")
    return Response((STATIC / file).read_bytes(), media_type=FILES[file], headers=headers)


def _page(library: Library, page: Callable[[Library, dict[str, Any]], str]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        asked = _query(request) | dict(request.path_params)
        try:
            return HTMLResponse(await run_in_threadpool(page, library, asked))
        except FreezeThawError as error:
            return HTMLResponse(pages.trouble(str(error)), status_of(error))

    return endpoint


def _form(library: Library) -> Endpoint:
    """What a form of the page sends: do it, and go back to the page, which says what was done."""

    async def endpoint(request: Request) -> Response:
        action = request.path_params["action"]
        try:
            fields = dict(parse_qsl((await content(request)).decode("utf-8", "replace"), keep_blank_values=True))
            watched = await run_in_threadpool(library.watched, request.path_params["study"])
            if action not in ACTIONS:
                raise Unknown("there is no such action")
            said = await run_in_threadpool(act, watched, action, fields)
        except FreezeThawError as error:
            if request.headers.get("accept", "").startswith("application/json"):
                return JSONResponse({"error": str(error)}, status_of(error))
            return HTMLResponse(pages.trouble(str(error)), status_of(error))
        if request.headers.get("accept", "").startswith("application/json"):
            return JSONResponse({"done": said})
        return RedirectResponse(f"/studies/{address_of(watched.stored)}", 303)

    return endpoint
