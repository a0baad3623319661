"""Every route needs the token; hosts and origins are checked; nothing that a user typed becomes markup or a file."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote, urlencode

import pytest

import freezethaw as ft
from freezethaw.study import session_of
from tests.server.studies import advance, fill

pytest.importorskip("starlette")
pytest.importorskip("plotly")

from freezethaw.server.access import HEADERS
from freezethaw.server.application import make_application
from freezethaw.server.study_page import SECTIONS

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
            if answer.headers["content-type"].startswith("text/html"):
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
        *(f"/studies/{key}/{section}" for section in SECTIONS),
        f"/studies/{key}/runs?{urlencode({'text': nasty, 'sort': f'config.{nasty}', 'is.config.kind': nasty})}",
        f"/studies/{key}/runs?{urlencode({'column': nasty, 'state': nasty, 'least.best': nasty})}",
        f"/studies/{key}/events?{urlencode({'text': nasty})}",
        f"/?{urlencode({'text': nasty, 'tag': nasty})}",
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
    store.urls = ("postgresql+psycopg://me:hunter2@host/tuning?password=hunter3", "sqlite:///b.db")
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


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A study with runs of every kind, and metrics."""
    url = f"sqlite:///{tmp_path_factory.mktemp('table')}/t.db"
    space = ft.Space({"x": ft.Float(0.0, 1.0), "kind": ft.Choice("=a", "b"), "deep": ft.Int(1, 3, when={"kind": "b"})})

    def train(run):
        if run.config["x"] > 0.8:
            raise RuntimeError(f"no memory for <b>{run.config['x']}</b>")
        for epoch in run.epochs():
            run.report(run.config["x"] + 1 / epoch, accuracy=1 - run.config["x"])

    with ft.Study(space, 3, name="kinds", store=url, metric="error", policy="random") as study:
        for x in (0.5, 0.9, 0.1, 0.7):
            study.enqueue({"x": x, "kind": "b", "deep": 2} if x > 0.4 else {"x": x, "kind": "=a"}, 2)
    ft.tune(train, space, 3, 8, name="kinds", store=url, metric="error", policy="random")
    return Client(make_application(url, TOKEN))


def runs_of(client, query=""):
    return [run["run"] for run in client("GET", f"/api/studies/kinds/runs?{query}").json()]


def test_runs_are_sorted_by_any_column_and_those_without_a_value_come_last(table):
    everything = client_runs(table)
    assert runs_of(table) == sorted(everything)
    for column, value in (
        ("best", lambda r: min(r["losses"], default=None)),
        ("config.x", lambda r: r["config"]["x"]),
        ("config.deep", lambda r: r["config"].get("deep")),
        ("metric.accuracy", lambda r: r["metrics"][-1]["accuracy"] if r["metrics"] else None),
        ("epochs", lambda r: r["epoch"]),
    ):
        for order in ("ascending", "descending"):
            found = [value(everything[n]) for n in runs_of(table, f"sort={column}&order={order}")]
            known = [v for v in found if v is not None]
            assert known == sorted(known, reverse=order == "descending"), column
            assert found[: len(known)] == known, column


def client_runs(client):
    numbers = runs_of(client)
    return {n: client("GET", f"/api/studies/kinds/runs/{n}").json() for n in numbers}


def test_runs_are_filtered_by_state_text_and_range(table):
    everything = client_runs(table)

    def those(fits):
        return [n for n, run in everything.items() if fits(run)]

    assert runs_of(table, "state=failed") == those(lambda r: r["state"] == "failed") != []
    assert runs_of(table, "text=RUN%201") == [n for n in everything if str(n).startswith("1")]
    assert runs_of(table, "least.config.x=0.45&most.config.x=0.75") == those(lambda r: 0.45 <= r["config"]["x"] <= 0.75)
    assert runs_of(table, "is.config.kind=%3Da") == those(lambda r: r["config"]["kind"] == "=a") != []
    assert runs_of(table, "least.metric.accuracy=0.8") == those(
        lambda r: bool(r["metrics"]) and r["metrics"][-1]["accuracy"] >= 0.8
    )
    assert runs_of(table, "text=nothing+like+it") == []
    assert "No run matches" in table("GET", "/studies/kinds/runs?text=nothing+like+it").text
    refused = table("GET", "/api/studies/kinds/runs?least.best=low")
    assert refused.code == 400
    assert "must be a number" in refused.json()["error"]


def test_the_download_holds_all_runs_that_match_and_no_formula(table):
    import csv

    answer = table("GET", "/studies/kinds/runs.csv?state=failed&column=run&column=config.kind&column=config.x")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    head, *rows = csv.reader(answer.text.splitlines())
    assert head == ["Run", "config.x", "config.kind"]
    assert sorted(int(row[0]) for row in rows) == runs_of(table, "state=failed")
    kinds = {row[0] for row in csv.reader(table("GET", "/studies/kinds/runs.csv?column=config.kind").text.splitlines())}
    assert kinds - {"config.kind"} <= {"'=a", "b"}
    assert "'=a" in kinds
    full = table("GET", "/studies/kinds/runs.csv?column=metric.accuracy&column=best").text.splitlines()
    assert full[0] == "Best error,metric.accuracy"
    assert len(full) == len(runs_of(table)) + 1
    assert table("GET", "/studies/none/runs.csv").code == 404


def test_a_failed_run_shows_its_traceback_and_a_frozen_one_why_it_waits(table):
    failed = runs_of(table, "state=failed")[0]
    page = table("GET", f"/studies/kinds/runs/{failed}").text
    assert "Traceback (most recent call last)" in page
    assert "no memory for &lt;b&gt;0.9&lt;/b&gt;" in page
    assert "no memory for &lt;b&gt;" in table("GET", "/studies/kinds/events?text=fail").text
    frozen = runs_of(table, "state=frozen")[0]
    assert "Frozen after epoch" in table("GET", f"/studies/kinds/runs/{frozen}").text
    assert table("POST", "/api/studies/kinds/ban", {"run": frozen}).code == 200
    assert "It is banned" in table("GET", f"/studies/kinds/runs/{frozen}").text
    assert frozen in runs_of(table, "text=banned")


def test_a_frozen_run_names_the_decision_that_preferred_another(client):
    frozen = [run["run"] for run in client("GET", "/api/studies/searched/runs?state=frozen").json()]
    said = client("GET", f"/studies/searched/runs/{frozen[-1]}").text.partition("Frozen after epoch")[2]
    assert "/decisions/" in said
    assert "score" in said.partition("</p>")[0]


def test_the_basket_is_sorted_by_what_is_drawn_and_the_reason_is_there_once(client):
    number = max(d["number"] for d in client("GET", "/api/studies/searched/decisions").json())
    found = client("GET", f"/api/studies/searched/decisions/{number}").json()
    page = client("GET", f"/studies/searched/decisions/{number}").text
    from freezethaw.server.components import sentence

    assert page.count(sentence(found["reason"])) == 1
    drawn = client("GET", f"/api/studies/searched/figures/basket?number={number}").json()
    assert found["reason"][:20] not in drawn["layout"]["meta"]["subtitle"]
    bars = drawn["data"][0]["x"]
    assert bars == sorted(bars)  # plotly draws the last one on top
    assert page.count("(chosen)") == 1


def test_several_stores_in_one_dashboard(tmp_path):
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in ("a", "b"))
    fill(first, "same", count=2)
    fill(second, "same", count=3)
    fill(second, "other", count=1)
    client = Client(make_application((first, second), TOKEN))
    found = client("GET", "/api/studies").json()
    assert [(info["name"], info["decisions"]) for info in found] == [("same", 2), ("same", 3), ("other", 1)]
    assert len({info["address"] for info in found}) == 3
    for info in found:
        assert client("GET", f"/api/studies/{info['address']}").json()["epochs"] == info["epochs"]
        assert f'href="/studies/{info["address"]}/runs"' in client("GET", f"/studies/{info['address']}").text
    assert "a.db" in client("GET", "/").text
    assert "b.db" in client("GET", "/").text
    assert len(client("GET", "/api/compare").json()) == 3


def test_each_port_has_a_cookie_of_its_own(client):
    answers = [client("GET", f"/?token={TOKEN}", token=None, host=f"localhost:{port}") for port in (8750, 8751)]
    names = [answer.headers["set-cookie"].partition("=")[0] for answer in answers]
    assert names == ["freezethaw-8750", "freezethaw-8751"]
    cookie = f"{names[0]}={TOKEN}"
    assert client("GET", "/", token=None, host="localhost:8750", cookie=cookie).code == 200
    assert client("GET", "/", token=None, host="localhost:8751", cookie=cookie).code == 401
    both = f"{cookie}; {names[1]}=of-another-server"
    assert client("GET", "/", token=None, host="localhost:8750", cookie=both).code == 200
    assert (
        client("GET", f"/?token={TOKEN}", token=None, host="[::1]:1").headers["set-cookie"].startswith("freezethaw-1=")
    )


def test_the_list_of_studies_is_searched_by_name_and_tag(tmp_path):
    url = f"sqlite:///{tmp_path}/tags.db"
    fill(url, "vision one", count=2)
    fill(url, "text two", count=1)
    study = ft.Study.open(url, "text two")
    session_of(study).storage.set_tags(["nlp"])
    study.close()
    client = Client(make_application(url, TOKEN))
    page = client("GET", "/").text
    assert page.count("<svg") == 2
    assert f"{client('GET', '/api/compare').json()[0]['best']['loss']:.5g} loss" in page
    for query, name in (("text=VISION", "vision one"), ("tag=nlp", "text two")):
        shown = client("GET", f"/?{query}").text
        assert [n for n in ("vision one", "text two") if f">{n}</a>" in shown] == [name]
    assert "No study matches" in client("GET", "/?text=nobody").text
