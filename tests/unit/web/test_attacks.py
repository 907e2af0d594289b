"""What sites, strangers and letters try, in a browser that is let in and beside it."""

import re
import shlex
import sys
import time
from html.parser import HTMLParser

import pytest
from support.archives import letter, write_analysis, write_segment
from support.consoles import ORIGIN, Serve

from dlq.archive.store import LocalStore
from dlq.reports import incidents, summary
from dlq.web import guard
from dlq.web.guard import Rates
from dlq.web.pages import ROUTES

FAILURE = "/failures/" + "aa" * 16
HOSTS = [
    "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example",
    "evil.example@127.0.0.1", "", "0.0.0.0:8080", "10.0.0.1", "[::ffff:10.0.0.1]", "dlq.example",
    "127.0.0.1, evil.example", "2130706433", "[::1]evil.example", "127.0.0.1:evil.example",
    "localhost:1/audit?", "[::1", "::1]",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", "/letters", "/static/style.css"])
def test_a_name_that_somebody_else_bound_to_this_address_is_refused(
    serve: Serve, host: str, path: str
) -> None:
    answer = serve().get(path, host=host)
    assert answer.status_code == 421
    assert "Boom" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "127.0.0.1"])
def test_this_host_by_any_of_its_own_names_is_served(serve: Serve, host: str) -> None:
    assert serve().get("/failures", host=host).status_code == 200


def test_a_request_with_two_hosts_is_refused(serve: Serve) -> None:
    browser = serve()
    answer = browser.client.get("/failures", headers=[("host", "127.0.0.1"), ("host", "evil.example")])
    assert answer.status_code in (400, 421)


ELSEWHERE = [
    {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "null", "sec-fetch-site": "cross-site"},
    {"origin": "null"},
    {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
    {"origin": "http://127.0.0.1:8080.evil.example"},
    {"origin": "http://127.0.0.1:8080@evil.example"},
    {"origin": "null", "sec-fetch-site": "none"},
    {"origin": "http://["},
    {"origin": "http://[::1"},
    {"origin": "127.0.0.1:8080"},
    {"origin": "://"},
]


@pytest.mark.parametrize("headers", ELSEWHERE)
def test_a_post_of_another_site_changes_nothing(serve: Serve, headers: dict[str, str]) -> None:
    browser = serve()
    sent = {"form_token": browser.token(), "text": "pwned"}
    answer = browser.client.post(f"{FAILURE}/note", data=sent, headers=headers)
    assert answer.status_code == 403
    assert "pwned" not in browser.get(FAILURE).text


def test_a_form_that_browsers_send_without_a_referrer_is_ours_if_they_say_so(serve: Serve) -> None:
    answer = serve().post(f"{FAILURE}/note", {"text": "seen"}, origin="null")
    assert answer.status_code == 303


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
def test_a_post_without_the_token_of_this_session_changes_nothing(serve: Serve, token: str) -> None:
    browser = serve()
    assert browser.post(f"{FAILURE}/note", {"text": "pwned", "form_token": token}).status_code == 403
    assert "pwned" not in browser.get(FAILURE).text


def test_the_token_of_another_person_is_none(serve: Serve) -> None:
    behind = {"proxies": ["127.0.0.1"], "roles": {"triage": ["*"]}}
    browser = serve(enter=False, serve=behind)
    of_eve, ada = browser.token(FAILURE, **{"x-forwarded-user": "eve"}), {"x-forwarded-user": "ada"}
    answer = browser.post(f"{FAILURE}/note", {"text": "x", "form_token": of_eve}, FAILURE, **ada)
    assert answer.status_code == 403
    assert browser.post(f"{FAILURE}/note", {"text": "x"}, FAILURE, **ada).status_code == 303


CHANGES, PAGES = ({route.path for route in ROUTES if route.method == method} for method in ("POST", "GET"))


@pytest.mark.parametrize("path", sorted(CHANGES - PAGES))
def test_nothing_is_changed_by_get(serve: Serve, path: str) -> None:
    address = re.sub(r"\{\w+\}", "aa" * 16, path)
    browser = serve()
    answer = browser.get(address + "?text=x&reason=x&form_token=" + browser.token())
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_other_methods_are_refused(serve: Serve, method: str) -> None:
    assert serve().client.request(method, "/letters").status_code == 405


TRAVERSALS = [
    "/static/../../etc/passwd", "/static/..%2f..%2fetc%2fpasswd", "/static/%2e%2e/console.py",
    "/static//etc/passwd", "/letters/..%2f..%2fledger.db", "/plans/..%2f..%2fdlq.toml", "/plans/%2e%2e",
    "/commands/..%2f..%2fetc", "/plans/a%00b",
    "/replays/....//x", "/letters/" + "a" * 5000, "/failures/aa\\bb",
]  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_address_leads_to_a_file(serve: Serve, path: str) -> None:
    answer = serve().get(path)
    assert answer.status_code in (400, 404)
    assert "root:" not in answer.text


def test_no_name_that_a_stranger_thinks_of_stays_here(serve: Serve) -> None:
    def count_kept() -> int:
        modules = [module for name, module in [*sys.modules.items()] if name.startswith("dlq.web")]
        caches = [one for module in modules for one in vars(module).values() if hasattr(one, "cache_info")]
        return sum(one.cache_info().currsize for one in caches)

    stranger = serve(enter=False)
    assert stranger.get("/static/style.css").status_code == 200
    assert stranger.get("/none").status_code == 401
    before = count_kept()
    for number in range(5):
        assert stranger.get(f"/static/{number}{'x' * 9_000}").status_code == 404
        assert stranger.get(f"/{number}{'x' * 9_000}").status_code == 401
    assert count_kept() == before


def test_a_page_that_fails_steers_no_terminal(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_console: object, _request: object) -> None:
        raise RuntimeError("\x1b[2J\u202e")

    browser = serve()
    monkeypatch.setattr("dlq.web.app._who", fail)
    answer = browser.get("/failures")
    assert (answer.status_code, "RuntimeError" in answer.text) == (500, False)
    told = capsys.readouterr().err
    assert r"RuntimeError: \x1b[2J\u202e" in told


def test_a_figure_that_no_page_can_mean_is_refused(serve: Serve) -> None:
    browser = serve()
    odd = [
        ("limit", "1e300"),
        ("limit", "1e19"),
        ("limit", "nan"),
        ("rate", "inf"),
        ("since", f"{'9' * 400}h"),
    ]
    for name, text in odd:
        sent = {"failure": "aa" * 16, name: text}
        assert browser.post("/plans", sent).status_code == 409, name


def test_a_giant_form_is_refused_by_its_length_and_by_what_comes(serve: Serve) -> None:
    browser = serve()
    giant = "x" * (guard.LARGEST_FORM + 1)
    assert browser.post(f"{FAILURE}/note", {"text": giant}).status_code == 413

    def pieces() -> object:
        yield b"text=" + giant.encode()

    headers = {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}
    answer = browser.client.post(f"{FAILURE}/note", content=pieces(), headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 413


def test_a_form_of_very_many_fields_is_refused(serve: Serve) -> None:
    answer = serve().post(f"{FAILURE}/note", {"id": ["1"] * 5_000, "text": "x"})
    assert answer.status_code == 413


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x"])
def test_a_body_that_is_no_form_of_ours_is_refused(serve: Serve, kind: str) -> None:
    answer = serve().post(f"{FAILURE}/note", {"text": "x"}, **{"content-type": kind})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    "value", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"]
)
@pytest.mark.parametrize("name", ["next", "return", "url", "token", "redirect", "back", "after"])
def test_no_parameter_says_where_a_browser_goes_next(serve: Serve, name: str, value: str) -> None:
    browser = serve()
    for answer in (
        browser.client.get(
            "/", params={name: value, "token": browser.console.sessions.token}, follow_redirects=False
        ),
        browser.post(f"{FAILURE}/note?{name}={value}", {"text": "x", name: value}),
        browser.post("/letters/chosen", {"act": "plan", "where": "true", name: value}),
        browser.post("/letters/chosen", {"act": "undo", "source": "orders", name: value}),
    ):
        place = answer.headers.get("location", "/")
        assert place.startswith("/")
        assert not place.startswith(("//", "/\\"))


AWAY = [
    "//evil.example/x",
    "/%2Fevil.example",
    "/%09/evil.example",
    "/%5Cevil.example",
    "/x;url=//evil.example",
]


@pytest.mark.parametrize("path", AWAY)
def test_who_comes_by_a_link_is_led_to_a_page_of_ours_alone(serve: Serve, path: str) -> None:
    stranger, by_link = serve(enter=False), {"sec-fetch-site": "cross-site"}
    answer = stranger.get(f"http://127.0.0.1:8080{path}", **by_link)
    assert answer.status_code == 401
    assert "evil.example" not in answer.text
    assert 'url=/failures"' in stranger.get("/failures", **by_link).text


def test_a_request_of_two_lengths_is_refused(serve: Serve) -> None:
    headers = [("content-length", "4"), ("transfer-encoding", "chunked")]
    assert serve().client.get("/failures", headers=headers).status_code == 400


def test_a_stranger_s_cookie_costs_nothing_and_hides_none_of_ours(serve: Serve) -> None:
    browser = serve()
    session = browser.client.cookies.pop("dlq-8080")
    odd = 'dlq-8080="' + '\\\\"' * 20_000 + '"'
    begun = time.process_time()
    assert browser.get("/failures", cookie=odd).status_code == 401
    assert time.process_time() - begun < 2
    assert browser.get("/failures", cookie=f"dlq-8080=evil; {odd};dlq-8080={session}").status_code == 200


def test_a_client_that_asks_too_often_has_to_wait_and_others_do_not() -> None:
    at = [0.0]
    rates = Rates(2.0, 3, lambda: at[0])
    assert [rates.take("a") for _ in range(5)] == [True, True, True, False, False]
    assert rates.take("b")
    at[0] = 1.0
    assert [rates.take("a") for _ in range(3)] == [True, True, False]


def test_very_many_posts_are_refused(serve: Serve) -> None:
    browser = serve()
    codes = [browser.client.post("/pull").status_code for _ in range(60)]
    assert codes[-1] == 429


ATTACK = "<script>window.pwned=1</script>\"'><img src=x onerror=alert(1)>{{7*7}}\u202e\x1b[2J"


TEXTS = (
    "message_id", "key", "correlation_id", "physical_id", "origin", "origin_exchange", "failure_text",
    "origin_routing_key", "content_type", "dead_letter_queue",
)  # fmt: skip


@pytest.fixture
def hostile(store: LocalStore) -> str:
    """A letter with an attack in every field that a stranger fills."""
    one = "f" * 32
    texts = (
        "message_id",
        "key",
        "correlation_id",
        "physical_id",
        "origin",
        "origin_exchange",
        "failure_text",
    )
    fields = {
        name: f"{name} {ATTACK}"
        for name in (*texts, "origin_routing_key", "content_type", "dead_letter_queue")
    }
    headers = {
        f"header {ATTACK}": ATTACK,
        "x-exception-stacktrace": f"java.lang.Boom: {ATTACK}\n\tat a.b(C.java:1)",
    }
    body = ATTACK.encode()
    write_segment(
        store, "p-1", [letter(9, record_id=one, headers=headers, properties=headers, body=body, **fields)]
    )
    said = {
        "cause": "application_error",
        "advice": "replay",
        "exception_class": ATTACK,
        "exception_message": ATTACK,
    }
    said |= {
        "evidence": ATTACK,
        "advice_reason": ATTACK,
        "rule": "framework",
        "fingerprint": "cc" * 16,
        "origin": ATTACK,
    }
    write_analysis(store, "20260102T000000", [{"record_id": one, **said}])
    return one


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/letters",
        "/failures",
        "/failures/" + "cc" * 16,
        "/letters/" + "f" * 32,
        "/letters?text=",
        "/letters?where=",
    ],
)
def test_what_strangers_wrote_is_text_on_every_page(serve: Serve, hostile: str, path: str) -> None:
    text = serve(mask={}).get(path).text
    assert "<script>window" not in text
    assert "onerror=alert(1)>" not in text.replace("&gt;", "")
    assert "49" not in re.sub(r"\d{2}:\d{2}|[0-9a-f]{12,}|20\d\d-\d\d-\d\d", "", text) or "{{7*7}}" in text
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_what_people_write_is_text_too(serve: Serve, hostile: str) -> None:
    browser = serve()
    browser.post(f"{FAILURE}/note", {"text": ATTACK})
    browser.post(f"{FAILURE}/assign", {"owner": ATTACK, "reason": ATTACK})
    for path in (FAILURE, "/failures", "/audit", "/", "/failures?owner=" + "%3Cscript%3Ewindow.pwned"):
        text = browser.get(path).text
        assert "<script>window" not in text
        assert "\u202e" not in text


def test_every_answer_forbids_what_pages_do_not_need(serve: Serve) -> None:
    browser = serve()
    for answer in (
        browser.get("/"),
        browser.get("/none"),
        browser.get("/static/style.css"),
        browser.get("/", host="x"),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert browser.get("/").headers["cache-control"] == "no-store"


class Markup(HTMLParser):
    """What a browser would run, load or style."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, given in attrs:
            value = (given or "").strip().lower()
            is_elsewhere = name in ("src", "href", "action") and not value.startswith(("/", "#", "data:,"))
            if name.startswith("on") or name == "style" or is_elsewhere:
                self.found.append(f"{tag} {name}={value}")
        if tag == "style" or (tag == "script" and not dict(attrs).get("src")):
            self.found.append(tag)


def test_pages_hold_no_script_no_style_and_no_address_of_others(serve: Serve, hostile: str) -> None:
    browser = serve()
    lists = (
        "/",
        "/letters",
        "/failures",
        "/incidents",
        "/plans",
        "/transactions",
        "/books",
        "/audit",
        "/plans/new",
    )
    for path in (*lists, f"/letters/{hostile}", f"/failures/{'cc' * 16}", FAILURE):
        markup = Markup()
        markup.feed(browser.get(path).text)
        assert markup.found == [], path


INJECTED = "`id`;$(id)"


@pytest.mark.parametrize(
    "command",
    [
        incidents.next_step({"ongoing": False, "dated": False, "size": 1, "incident_id": INJECTED})[
            "command"
        ],
        summary._look_at_the_top([{"state": "new", "letters": 1, "example": INJECTED}])[0]["command"],
    ],
)
def test_a_command_to_be_copied_quotes_an_id(command: str) -> None:
    assert shlex.split(command)[-1] == INJECTED
    assert f"'{INJECTED}'" in command
