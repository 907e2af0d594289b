"""What sites, strangers and letters try, in a browser that is let in and beside it."""

import re
import shlex
import sys
import time
from html.parser import HTMLParser

import pytest
from support.archives import letter, write_analysis, write_segment
from support.consoles import FAILURE, ORIGIN, Serve, name_person
from support.rows import each_row

from dlq.archive.storage.store import LocalStore
from dlq.reports import incidents, summary
from dlq.web import guard
from dlq.web.guard import Rates
from dlq.web.pages import ROUTES

HOSTS = [
    "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example",
    "evil.example@127.0.0.1", "", "0.0.0.0:8080", "10.0.0.1", "[::ffff:10.0.0.1]", "dlq.example",
    "127.0.0.1, evil.example", "2130706433", "[::1]evil.example", "127.0.0.1:evil.example",
    "localhost:1/audit?", "[::1", "::1]",
]  # fmt: skip


def test_a_name_that_somebody_else_bound_to_this_address_is_refused(serve: Serve) -> None:
    browser = serve()
    for host in HOSTS:
        for path in ("/", "/letters", "/static/style.css"):
            answer = browser.get(path, host=host)
            assert (answer.status_code, "Boom" in answer.text) == (421, False), (host, path)
    for host in ("127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "127.0.0.1"):
        assert browser.get("/failures", host=host).status_code == 200, host
    two_hosts = [("host", "127.0.0.1"), ("host", "evil.example")]
    assert browser.client.get("/failures", headers=two_hosts).status_code in (400, 421)


@each_row(("origin", "site"), [
    ("https://evil.example", "cross-site"), ("https://evil.example", None),
    ("http://127.0.0.1:9999", "same-site"), ("http://127.0.0.1:9999", None), ("null", "cross-site"),
    ("null", None), (ORIGIN, "cross-site"), ("http://127.0.0.1:8080.evil.example", None),
    ("http://127.0.0.1:8080@evil.example", None), ("null", "none"), ("http://[", None), ("http://[::1", None),
    ("127.0.0.1:8080", None), ("://", None),
])  # fmt: skip
def test_a_post_of_another_site_changes_nothing(serve: Serve, origin: str, site: str | None) -> None:
    browser = serve()
    sent = {"form_token": browser.token(), "text": "pwned"}
    headers = {"origin": origin, **({"sec-fetch-site": site} if site else {})}
    answer = browser.client.post(f"{FAILURE}/note", data=sent, headers=headers)
    assert answer.status_code == 403
    assert "pwned" not in browser.get(FAILURE).text


def test_a_form_that_browsers_send_without_a_referrer_is_ours_if_they_say_so(serve: Serve) -> None:
    answer = serve().post(f"{FAILURE}/note", {"text": "seen"}, origin="null")
    assert answer.status_code == 303


def test_a_post_without_the_token_of_this_session_changes_nothing(serve: Serve) -> None:
    browser = serve()
    for token in ("", "0" * 64, "é"):
        assert browser.post(f"{FAILURE}/note", {"text": "pwned", "form_token": token}).status_code == 403
    assert "pwned" not in browser.get(FAILURE).text


def test_the_token_of_another_person_is_none(serve: Serve) -> None:
    browser = serve(enter=False, serve={"proxies": ["127.0.0.1"], "roles": {"triage": ["*"]}})
    of_eve, ada = browser.token(FAILURE, **name_person("eve")), name_person("ada")
    answer = browser.post(f"{FAILURE}/note", {"text": "x", "form_token": of_eve}, FAILURE, **ada)
    assert answer.status_code == 403
    assert browser.post(f"{FAILURE}/note", {"text": "x"}, FAILURE, **ada).status_code == 303


CHANGES, PAGES = ({route.path for route in ROUTES if route.method == method} for method in ("POST", "GET"))


def test_nothing_is_changed_by_get(serve: Serve) -> None:
    browser = serve()
    for path in CHANGES - PAGES:
        address = re.sub(r"\{\w+\}", "aa" * 16, path)
        answer = browser.get(address + "?text=x&reason=x&form_token=" + browser.token())
        assert answer.status_code in (400, 404), path
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
        assert browser.client.request(method, "/letters").status_code == 405, method


@each_row("path", [
    "/static/../../etc/passwd", "/static/..%2f..%2fetc%2fpasswd", "/static/%2e%2e/console.py",
    "/static//etc/passwd", "/letters/..%2f..%2fledger.db", "/plans/..%2f..%2fdlq.toml", "/plans/%2e%2e",
    "/commands/..%2f..%2fetc", "/plans/a%00b", "/replays/....//x", "/letters/" + "a" * 5000,
    "/failures/aa\\bb",
])  # fmt: skip
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
    monkeypatch.setattr("dlq.web.app._find_person", fail)
    answer = browser.get("/failures")
    assert (answer.status_code, "RuntimeError" in answer.text) == (500, False)
    told = capsys.readouterr().err
    assert r"RuntimeError: \x1b[2J\u202e" in told


def test_a_figure_that_no_page_can_mean_is_refused(serve: Serve) -> None:
    browser, rates = serve(), ("-1", "nan", "inf", "fast", "1e999")
    odd = [("limit", "1e300"), ("limit", "1e19"), ("limit", "nan"), ("since", f"{'9' * 400}h")]
    for name, text in [*odd, *(("rate", rate) for rate in rates)]:
        assert browser.post("/plans", {"failure": "aa" * 16, name: text}).status_code == 409, (name, text)


def test_a_giant_form_is_refused_by_its_length_and_by_what_comes(serve: Serve) -> None:
    browser = serve()
    giant = "x" * (guard.LARGEST_FORM + 1)
    assert browser.post(f"{FAILURE}/note", {"text": giant}).status_code == 413

    def pieces() -> object:
        yield b"text=" + giant.encode()

    headers = {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}
    answer = browser.client.post(f"{FAILURE}/note", content=pieces(), headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 413
    answer = browser.post(f"{FAILURE}/note", {"id": ["1"] * 5_000, "text": "x"})
    assert answer.status_code == 413, "of very many fields"


def test_a_body_that_is_no_form_of_ours_is_refused(serve: Serve) -> None:
    browser = serve()
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
        answer = browser.post(f"{FAILURE}/note", {"text": "x"}, **{"content-type": kind})
        assert answer.status_code == 415, kind


ELSEWHERE = ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)")


@pytest.mark.parametrize("value", ELSEWHERE)
@pytest.mark.parametrize("name", ["next", "return", "url", "token", "redirect", "back", "after"])
def test_no_parameter_says_where_a_browser_goes_next(serve: Serve, name: str, value: str) -> None:
    browser = serve()
    entering = {name: value, "token": browser.console.sessions.token}
    for answer in (
        browser.client.get("/", params=entering, follow_redirects=False),
        browser.post(f"{FAILURE}/note?{name}={value}", {"text": "x", name: value}),
        browser.post("/letters/chosen", {"act": "plan", "where": "true", name: value}),
        browser.post("/letters/chosen", {"act": "undo", "source": "orders", name: value}),
    ):
        place = answer.headers.get("location", "/")
        assert place.startswith("/")
        assert not place.startswith(("//", "/\\"))


def test_who_comes_by_a_link_is_led_to_a_page_of_ours_alone(serve: Serve) -> None:
    stranger, by_link = serve(enter=False), {"sec-fetch-site": "cross-site"}
    for path in ("//evil.example/x", "/%2Fevil.example", "/%09/evil.example", "/%5Cevil.example",
                 "/x;url=//evil.example"):  # fmt: skip
        answer = stranger.get(f"http://127.0.0.1:8080{path}", **by_link)
        assert (answer.status_code, "evil.example" in answer.text) == (401, False), path
    assert 'url=/failures"' in stranger.get("/failures", **by_link).text
    assert "refresh" not in stranger.get("/failures", **{"sec-fetch-site": "same-origin"}).text


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
    browser, begun = serve(), time.monotonic()
    codes = [browser.client.post("/pull").status_code for _ in range(60)]
    assert 40 <= len(codes) - codes.count(429) <= 41 + 4 * (time.monotonic() - begun)


ATTACK = "<script>window.pwned=1</script>\"'><img src=x onerror=alert(1)>{{7*7}}\u202e\x1b[2J"
TEXTS = (
    "message_id", "key", "correlation_id", "physical_id", "origin", "origin_exchange", "failure_text",
    "origin_routing_key", "content_type", "dead_letter_queue",
)  # fmt: skip


@pytest.fixture
def hostile(store: LocalStore) -> str:
    """A letter with an attack in every field that a stranger fills."""
    one = "f" * 32
    trace = f"java.lang.Boom: {ATTACK}\n\tat a.b(C.java:1)"
    headers = {f"header {ATTACK}": ATTACK, "x-exception-stacktrace": trace}
    fields = {name: f"{name} {ATTACK}" for name in TEXTS}
    known = {"headers": headers, "properties": headers, "body": ATTACK.encode()}
    write_segment(store, "p-1", [letter(9, record_id=one, **known, **fields)])
    said = {"cause": "application_error", "advice": "replay", "rule": "framework", "fingerprint": "cc" * 16}
    attacks = ("exception_class", "exception_message", "evidence", "advice_reason", "origin")
    write_analysis(store, "20260102T000000", [{"record_id": one, **said, **dict.fromkeys(attacks, ATTACK)}])
    return one


@pytest.mark.parametrize("path", [
    "/", "/letters", "/failures", "/failures/" + "cc" * 16, "/letters/" + "f" * 32, "/letters?text=",
    "/letters?where=",
])  # fmt: skip
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
    answers = [browser.get(path) for path in ("/", "/none", "/static/style.css")]
    for answer in (*answers, browser.get("/", host="x")):
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
    for path in (
        "/", "/letters", "/failures", "/incidents", "/plans", "/transactions", "/books", "/audit", FAILURE,
        "/plans/new", f"/letters/{hostile}", f"/failures/{'cc' * 16}",
    ):  # fmt: skip
        markup = Markup()
        markup.feed(browser.get(path).text)
        assert markup.found == [], path


def test_a_command_to_be_copied_quotes_an_id() -> None:
    injected = "`id`;$(id)"
    for step in (
        incidents.next_step({"ongoing": False, "dated": False, "size": 1, "incident_id": injected}),
        summary._look_at_the_top([{"state": "new", "letters": 1, "example": injected}])[0],
    ):
        assert shlex.split(step["command"])[-1] == injected
        assert f"'{injected}'" in step["command"]
