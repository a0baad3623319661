"""Every route needs the token; hosts and origins are checked; nothing that a user typed becomes markup or a file."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import pytest

import freezethaw as ft
from freezethaw.study import session_of
from tests.server.studies import advance, fill

pytest.importorskip("starlette")
pytest.importorskip("plotly")

from freezethaw.server.access import HEADERS
from freezethaw.server.application import make_application

TOKEN = "a-token-for-tests"
NASTY = [
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "';alert(1)//",
    "</script><script>alert(1)</script>",
    "<svg/onload=alert(1)>", "javascript:alert(1)", "{{7*7}}", "<a href=javascript:alert(1)>x</a>", "</title><b>",
    "&lt;b",
    "</textarea><script>alert(1)</script>", "' onmouseover='alert(1)", "<iframe srcdoc='<script>alert(1)</script>'>",
]  # fmt: skip
TRAVERSAL = [
    "../pages.py", "..%2f..%2fpages.py", "%2e%2e/pages.py", "....//pages.py", "/etc/passwd",
    "%2fetc%2fpasswd", "page.css/../../pages.py",
    "..\\pages.py", "page.css%00.js", "~root", "file:///etc/passwd", "static/../../../../etc/passwd",
]  # fmt: skip


class Client:
    """Speaks to an ASGI application, without a network."""

    def __init__(self, application):
        self.application = application

    def __call__(self, method, path, body=None, token=TOKEN, **headers):
        return asyncio.run(self._ask(method, path, body, token, headers))

    async def _ask(self, method, path, body, token, headers):
        from urllib.parse import unquote

        where, _, query = path.partition("?")
        given = {"host": "localhost:1", **{key.replace("_", "-"): value for key, value in headers.items()}}
        if token:
            given["authorization"] = f"Bearer {token}"
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(where), "raw_path": where.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in given.items()],
            "client": ("x", 1), "server": ("x", 1),
        }  # fmt: skip
        sent = []
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        told = [{"type": "http.request", "body": content}]

        async def receive():
            return told.pop() if told else {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await self.application(scope, receive, send)
        return Answer(sent)


class Answer:
    def __init__(self, sent):
        self.code = sent[0]["status"]
        self.headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in sent[1:])
        self.text = self.body.decode()

    def json(self):
        return json.loads(self.body)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    made = f"sqlite:///{tmp_path_factory.mktemp('access')}/a.db"
    fill(made)
    return made


@pytest.fixture(scope="module")
def application(url):
    return make_application(url, TOKEN)


@pytest.fixture
def client(application):
    return Client(application)


def routes(application):
    for route in application.application.routes:
        path = route.path.replace("{study}", "searched").replace("{run}", "1").replace("{number}", "5")
        path = path.replace("{figure}", "curves").replace("{file}", "page.js").replace("{action}", "pin")
        for method in route.methods:
            yield method, path


def test_every_route_and_verb_needs_the_token(application, client):
    found = list(routes(application))
    assert len(found) > 30
    for method, path in found:
        for token in (None, "wrong", ""):
            answer = client(method, path, token=token)
            assert answer.code == 401, (method, path)
        assert client(method, path + "?token=wrong", token=None).code == 401
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert client(method, "/api/studies/searched", token=None).code == 401
        assert client(method, "/api/studies/searched").code == 405


def test_every_answer_has_the_headers_and_every_page_its_json(application, client):
    for method, path in routes(application):
        if method == "GET" and not path.endswith("/stream"):
            answer = client(method, path)
            assert answer.code == 200, path
            for name, value in HEADERS.items():
                assert answer.headers[name.lower()] == value
            if answer.headers["content-type"].startswith("text/html") and not path.endswith("/live"):
                twin = answer.text.partition('class="json" href="')[2].partition('"')[0]
                assert client("GET", twin).json()
    assert "unsafe-eval" not in HEADERS["Content-Security-Policy"]
    assert "script-src 'self';" in HEADERS["Content-Security-Policy"]


def test_the_token_in_the_address_becomes_a_cookie(client):
    answer = client("GET", f"/studies/searched?token={TOKEN}&x=1", token=None)
    assert answer.code == 303
    assert answer.headers["location"] == "/studies/searched?x=1"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client("GET", "/", token=None, cookie=cookie.partition(";")[0]).code == 200
    assert client("GET", f"//elsewhere.example?token={TOKEN}", token=None).headers["location"] == "/elsewhere.example"


def test_other_hosts_and_origins_are_refused(client):
    assert client("GET", "/", host="attacker.example").code == 421
    assert client("GET", "/", host="10.1.1.1:80").code == 421
    assert client("POST", "/api/studies/searched/stop", origin="http://attacker.example").code == 403
    assert client("POST", "/api/studies/searched/unpin", {"run": 1}, origin="http://localhost:1").code == 200


def test_a_request_that_is_too_large_is_refused(client):
    answer = client("POST", "/api/studies/searched/tell", b" " * 1_000_001)
    assert answer.code == 400
    assert "larger than" in answer.json()["error"]
    assert client("POST", "/studies/searched/pin", b"x" * 1_000_001).code == 400
    assert client("POST", "/api/studies/searched/tell", {}, content_length="x").code == 400


def test_nothing_but_the_files_of_the_page_is_read(client):
    for path in TRAVERSAL:
        for start in ("/static/", "/studies/", "/api/studies/", "/api/studies/searched/figures/"):
            answer = client("GET", start + path)
            assert answer.code in (404, 405), (start, path)
            assert "root:" not in answer.text
            assert "from __future__" not in answer.text


@pytest.mark.parametrize("nasty", NASTY)
def test_what_a_user_typed_is_text(tmp_path, nasty):
    url = f"sqlite:///{tmp_path}/n.db"
    space = ft.Space({nasty: ft.Float(0.0, 1.0), "kind": ft.Choice(nasty, "b")})
    study = ft.Study(space, 3, name=nasty, store=url)
    session_of(study).storage.set_tags([nasty.replace(",", "")])
    session_of(study).storage.add_event(nasty, nasty)
    study.enqueue({nasty: 0.5, "kind": nasty})
    study.tell(study.ask(), 1.0)
    study.close()
    application = make_application(url, TOKEN)
    client = Client(application)
    [info] = client("GET", "/api/studies").json()
    assert info["name"] == nasty
    key = info["address"]
    for path in (
        "/",
        f"/studies/{key}",
        f"/studies/{key}/runs/1",
        f"/studies/{key}/decisions/1",
        f"/studies/{quote(nasty)}x",
    ):
        page = client("GET", path).text
        for harm in ("<script>alert", "<img", "<svg/", "<iframe", "<b>", "onmouseover='alert", "<a href=javascript"):
            assert harm not in page, path
    from freezethaw.server import report_html

    text = report_html(url, nasty)
    assert "<script>alert" not in text
    assert text.count("</script>") == 3


def test_passwords_in_urls_are_masked(monkeypatch):
    from freezethaw.server.views import StoreView

    store = StoreView.__new__(StoreView)
    store.url = "postgresql+psycopg://me:hunter2@host/tuning?password=hunter3"
    assert "hunter" not in store.shown


def test_asking_telling_and_steering_by_http(tmp_path):
    url = f"sqlite:///{tmp_path}/api.db"
    client = Client(make_application(url, TOKEN))
    space = {"x": {"type": "float", "low": 0.0, "high": 1.0}}
    made = client("POST", "/api/studies", {"name": "other", "space": space, "max_epochs": 4, "budget": 9})
    assert made.code == 200, made.text
    at = "/api/studies/other"
    assert client("GET", f"{at}/best").json() is None
    seen = 0
    while (found := client("POST", f"{at}/ask").json())["decision"]:
        decision = found["decision"]
        lease = {"decision": decision["number"], "token": decision["token"]}
        assert client("POST", f"{at}/heartbeat", lease).json() == {"held": True}
        assert client("POST", f"{at}/heartbeat", lease | {"token": 99}).code == 409
        losses = [decision["config"]["x"] + 1 / e for e in range(decision["from_epoch"] + 1, decision["to_epoch"] + 1)]
        told = client("POST", f"{at}/tell", lease | {"losses": losses})
        assert told.json() == {"epoch": decision["to_epoch"], "closed": True}
        assert client("POST", f"{at}/tell", lease | {"losses": losses}).code in (400, 409)
        seen += len(losses)
    assert seen == 9
    assert "budget spent" in found["finished"]
    assert client("GET", f"{at}/best").json()["loss"] > 0
    [end] = client("POST", f"{at}/forecast", {"run": 1}).json()
    assert end["low_90"] <= end["median"] <= end["high_90"]
    assert client("POST", f"{at}/budget", {"epochs": 11}).code == 200
    assert client("POST", f"{at}/enqueue", {"config": {"x": 0.25}}).code == 200
    decision = client("POST", f"{at}/ask").json()["decision"]
    assert decision["config"] == {"x": 0.25}
    lease = {"decision": decision["number"], "token": decision["token"]}
    assert client("POST", f"{at}/tell", lease | {"losses": [None]}).json()["closed"]
    assert client("GET", f"{at}/runs/{decision['run']}").json()["state"] == "diverged"
    assert client("POST", f"{at}/stop").code == 200
    assert "stopped" in client("POST", f"{at}/ask").json()["finished"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/api/studies/none", None, 404),
        ("/api/studies/searched/runs/99", None, 404),
        ("/api/studies/searched/runs/x", None, 400),
        ("/api/studies/searched/decisions/99", None, 404),
        ("/api/studies/searched/figures/none", None, 404),
        ("/api/studies/searched/tell", {"decision": 1, "token": 1, "losses": []}, 400),
        ("/api/studies/searched/tell", {"decision": 999, "token": 1, "losses": [1.0]}, 404),
        ("/api/studies/searched/tell", {"decision": 1, "token": "x", "losses": [1.0]}, 400),
        ("/api/studies/searched/tell", b"{", 400),
        ("/api/studies/searched/tell", b"[]", 400),
        ("/api/studies/searched/thaw", {"run": 99}, 404),
        ("/api/studies/searched/thaw", {"run": 1, "to_epoch": 10**30}, 400),
        ("/api/studies/searched/enqueue", {"config": {"rate": "x"}}, 400),
        ("/api/studies/searched/enqueue", {"config": {}, "more": 1}, 400),
        ("/api/studies/searched/budget", {"epochs": -5}, 400),
        ("/api/studies/searched/budget", {}, 400),
        ("/api/studies/searched/forecast", {"run": 1, "epochs": ["x"]}, 400),
        ("/api/studies", {"name": "n", "space": {"x": {"type": "no"}}, "max_epochs": 2}, 400),
        ("/api/studies", {"name": "", "space": {}, "max_epochs": 2}, 400),
    ],
)
def test_mistakes_are_told_and_none_is_an_error_of_the_server(client, path, body, code):
    answer = client("GET" if body is None else "POST", path, body)
    assert answer.code == code, answer.text
    assert answer.json()["error"]


ODD = [
    None, True, -1, 0, 1, 2**70, 1.5, 1e308, "", "1", "x", NASTY[0], "\x00", "\ud800", [],
    [None], [[]], {}, {"x": None}, {"x": {}},
]  # fmt: skip


def test_no_request_however_odd_is_an_error_of_the_server(tmp_path):
    from freezethaw.server.api import OPERATIONS

    url = f"sqlite:///{tmp_path}/odd.db"
    fill(url, count=3)
    client = Client(make_application(url, TOKEN))
    usual = {
        "decision": 1,
        "token": 1,
        "losses": [1.0],
        "run": 1,
        "config": {},
        "name": "o",
        "space": {},
        "max_epochs": 2,
    }
    for operation in OPERATIONS:
        path = operation.path.replace("{study}", "searched")
        for odd in ODD:
            filled = path.replace("{run}", quote(str(odd), errors="replace")).replace(
                "{number}", quote(str(odd), errors="replace")
            )
            query = "&".join(f"{key}={quote(str(odd), errors='replace')}" for key in operation.query)
            for key in operation.body or [""]:
                body = {k: v for k, v in usual.items() if k in operation.body} | ({key: odd} if key else {})
                answer = client(operation.method, f"{filled}?{query}", body)
                assert answer.code < 500, (operation.name, key, odd, answer.text)


def test_the_openapi_document_names_every_operation(application, client):
    document = client("GET", "/api/openapi.json").json()
    named = {(method.upper(), path) for path, entry in document["paths"].items() for method in entry}
    for route in application.application.routes:
        if route.path.startswith("/api/") and not route.path.endswith(("/stream", "openapi.json")):
            assert {(m, route.path) for m in route.methods - {"HEAD"}} <= named


def test_a_study_goes_on_while_pages_are_read_and_reading_writes_nothing(url, client):
    study = ft.Study.open(url, "searched")
    change = session_of(study).storage.change()
    for path in ("/studies/searched", "/api/studies/searched", "/api/studies/searched/figures/curves"):
        assert client("GET", path).code == 200
    assert session_of(study).storage.change() == change
    advance(study, 1)
    assert client("GET", "/api/studies/searched").json()["change"] > change
    study.close()


def test_studies_side_by_side(tmp_path):
    url = f"sqlite:///{tmp_path}/many.db"
    fill(url, "first", count=5)
    fill(url, "second, with a comma", count=2, seed=2)
    fill(url, "empty", count=0)
    client = Client(make_application(url, TOKEN))
    address = {info["name"]: info["address"] for info in client("GET", "/api/studies").json()}
    assert client("GET", "/").text.count('name="among"') == 3
    query = f"?among=first&among={address['second, with a comma']}"
    found = client("GET", f"/api/compare{query}").json()
    assert [one["name"] for one in found] == ["first", "second, with a comma"]
    assert [one["epochs"] for one in found] == [5, 2]
    assert found[0]["best"]["config"]["rate"] > 0
    page = client("GET", f"/compare{query}").text
    assert "second, with a comma" in page
    assert ">empty<" not in page
    for against in ("epochs", "hours", "nonsense"):
        figure = client("GET", f"/api/compare/comparison{query}&against={against}").json()
        assert [trace["name"] for trace in figure["data"]] == ["first", "second, with a comma"]
    assert len(client("GET", "/api/compare").json()) == 3  # all of them, where none is named
    assert client("GET", "/api/compare?among=nobody").code == 404
    assert client("GET", "/compare?among=nobody").code == 404
    assert client("GET", "/api/compare/comparison?among=nobody").code == 404
    assert client("GET", "/api/compare?" + "&".join(f"among={n}" for n in range(13))).code == 400


def test_the_disk_budget_has_a_gauge_and_a_run_its_last_worker(tmp_path):
    url = f"sqlite:///{tmp_path}/disk.db"

    def train(run):
        for _ in run.epochs():
            run.report(run.config["x"], save=lambda folder: (folder / "w").write_bytes(bytes(1000)))

    options = {"name": "disk", "store": url, "checkpoints": ft.Checkpoints(gb=2)}
    ft.tune(train, ft.Space(x=ft.Float(0.0, 1.0)), 2, 2, **options)
    client = Client(make_application(url, TOKEN))
    assert client("GET", "/api/studies/disk").json()["disk_gb"] == 2
    assert "of 2 GB" in client("GET", "/studies/disk").text
    assert "last trained by process" in client("GET", "/studies/disk/runs/1").text
    options["checkpoints"] = None  # the same command without a limit
    ft.tune(train, ft.Space(x=ft.Float(0.0, 1.0)), 2, 3, **options)
    assert client("GET", "/api/studies/disk").json()["disk_gb"] is None
    assert " free" in client("GET", "/studies/disk").text
