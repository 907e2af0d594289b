"""Who may see and do what: tokens, cookies, proxies, roles."""

import re
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection
from support.consoles import FAILURE, Serve
from support.rows import each_row

from dlq.cli.app import run
from dlq.core.configuration import parse
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Roles
from dlq.web.people import Forged, Person, find_rights, read_proxy
from dlq.web.server import check_host

OPS = {"x-forwarded-user": "ada", "x-forwarded-groups": "ops,staff"}
BEHIND = {
    "proxies": ["10.1.0.0/16"], "hosts": ["dlq.example"], "groups_header": "X-Forwarded-Groups",
    "roles": {"triage": ["group:ops"]},
}  # fmt: skip


def test_the_token_leaves_the_address_at_once_for_a_cookie_that_no_script_has(serve: Serve) -> None:
    browser = serve(enter=False)
    answer = browser.enter()
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert browser.console.sessions.token not in cookie


def test_without_a_name_there_is_no_page(serve: Serve) -> None:
    stranger = serve(enter=False)
    for path in ("/", "/letters", "/audit", "/nothing", "/plans/new", "/?token=wrong", "/?token="):
        answer = stranger.get(path)
        assert (answer.status_code, "orders" in answer.text) == (401, False), path


def test_a_cookie_of_the_last_start_is_refused_and_of_who_signed_out(serve: Serve) -> None:
    before, now = serve(), serve(enter=False)
    cookies = dict(before.client.cookies)
    now.client.cookies.update(cookies)
    assert before.get("/letters").status_code == 200
    assert now.get("/letters").status_code == 401
    assert before.post("/logout").status_code == 200
    before.client.cookies.update(cookies)
    assert before.get("/letters").status_code == 401


@pytest.mark.parametrize("client", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_a_header_of_a_listed_proxy_says_who_asks(serve: Serve, client: str) -> None:
    answer = serve(client, enter=False, serve=BEHIND).get("/failures", **OPS, host="dlq.example")
    assert (answer.status_code, "ada" in answer.text) == (200, True)


def test_groups_are_believed_only_by_the_header_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    headers = [(b"x-forwarded-user", b"eve"), (b"x-forwarded-groups", b"ops"), (b"x-teams", b"Ops,a b")]
    asked = HTTPConnection({"type": "http", "client": ("10.1.2.3", 5), "headers": headers})
    for table, groups in (
        ({**BEHIND, "groups_header": "X-Teams"}, {"Ops", "a b"}), ({"proxies": BEHIND["proxies"]}, set()),
    ):  # fmt: skip
        person = read_proxy(asked, parse({"serve": table}).serve)
        assert person == Person("eve", frozenset(groups), "proxy:eve", "proxy")
    monkeypatch.chdir(tmp_path)
    Path("dlq.toml").write_text('[serve.roles]\ntriage = ["group:ops"]\n')
    assert run(["serve", "--port", "0"]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert '[serve] groups_header = "X-Forwarded-Groups"' in said


@pytest.mark.parametrize("client", ["10.2.0.1", "127.0.0.1", "192.168.1.1", "testclient", "::1"])
def test_the_same_header_from_another_address_says_nothing(serve: Serve, client: str) -> None:
    browser = serve(client, enter=False, serve=BEHIND)
    assert browser.get("/failures", **OPS, host="dlq.example").status_code == 401


def test_a_proxy_that_names_nobody_or_several_is_not_believed(serve: Serve) -> None:
    browser = serve("10.1.2.3", enter=False, serve=BEHIND)
    for names in (["ada", "root"], [""], ["a" * 201], ["ada\x01"]):
        headers = [("x-forwarded-user", name) for name in names]
        answer = browser.client.get("/failures", headers=[("host", "dlq.example"), *headers])
        assert answer.status_code == 400, names


@each_row(("users", "groups"), [
    ([b"eve"], [b"staff", b"ops"]), ([b"eve", b"ada"], []), ([b"ad\xff"], []), ([b"eve"], [b"ops,\xff"]),
    (["\xa0".encode()], []), ([b"ada "], []), ([b"eve, ada"], []), ([b"eve,ada"], []),
    ([b"eve"], [b"staff, ops"]), ([b"eve"], [b"staff,,ops"]), ([b"eve"], [b"o\tps"]),
])  # fmt: skip
def test_what_a_client_could_have_added_is_not_believed(users: list[bytes], groups: list[bytes]) -> None:
    headers = [(b"x-forwarded-user", one) for one in users] + [(b"x-forwarded-groups", one) for one in groups]
    asked = HTTPConnection({"type": "http", "client": ("10.1.2.3", 5), "headers": headers})
    with pytest.raises(Forged):
        read_proxy(asked, parse({"serve": BEHIND}).serve)


def test_a_header_that_only_looks_like_the_proxy_s_says_nothing(serve: Serve) -> None:
    browser = serve("10.1.2.3", enter=False, serve=BEHIND)
    for name in ("X_Forwarded_User", "X-Forwarded_User", "X-Forwarded-User-", "Remote-User"):
        assert browser.get("/failures", **{name: "ada", "host": "dlq.example"}).status_code == 401, name


def test_a_name_is_what_the_proxy_says_to_its_last_letter(serve: Serve) -> None:
    browser = serve("10.1.2.3", enter=False, serve=BEHIND)
    for name in ("voilà", "Å", "Ωmega", "ada lovelace"):
        headers = [(b"host", b"dlq.example"), (b"x-forwarded-user", name.encode())]
        assert f">{name}<" in browser.client.get("/failures", headers=headers).text.replace("</summary", "<")


OPEN, NARROW = Roles(triage=("group:ops",), apply=("eve",)), Roles(read=("ada",), plan=("bob",))


@each_row(("roles", "name", "groups", "rights"), [
    (OPEN, "ada", ["ops"], {"read", "triage"}), (OPEN, "eve", ["staff"], {"read", "apply"}),
    (OPEN, "group:ops", [], {"read"}), (OPEN, "*", [], {"read"}), (OPEN, "ADA", ["OPS"], {"read"}),
    (NARROW, "ada", [], {"read"}), (NARROW, "bob", [], {"read", "plan"}), (NARROW, "eve", [], set()),
])  # fmt: skip
def test_rights_are_by_exact_names_and_groups_and_who_may_do_anything_may_read(
    roles: Roles, name: str, groups: list[str], rights: set[str]
) -> None:
    assert find_rights(Person(name, frozenset(groups), "s", "proxy"), roles) == rights


def test_without_configuration_everything_is_read_only(serve: Serve) -> None:
    browser = serve(serve={})
    assert browser.get("/letters").status_code == 200
    for path in (f"{FAILURE}/note", "/plans", "/pull", "/analyze", f"{FAILURE}/dismiss"):
        answer = browser.post(path, {"text": "x", "reason": "x"})
        assert (path, answer.status_code) == (path, 403)
        assert "[serve] roles." in answer.text
    text = browser.get(FAILURE).text
    why = "may not triage failures and dismiss letters: [serve] roles.triage in dlq.toml says who may"
    assert why in text
    assert re.search("<button[^>]* disabled>Assign</button>", text)


def test_who_may_not_read_sees_no_page(serve: Serve) -> None:
    answer = serve(serve={"roles": {"read": ["group:staff"]}}).get("/letters")
    assert answer.status_code == 403
    assert "1111" not in answer.text


def test_listening_to_others_needs_a_name_in_the_configuration() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.7", "dlq.example"):
        with pytest.raises(UsageError, match=r"--host .*\[serve\] hosts"):
            check_host(parse({}), host)
        check_host(parse({"serve": {"hosts": ["dlq.example"]}}), host)
    for host in ("127.0.0.1", "::1", "localhost", "127.8.9.1"):
        check_host(parse({}), host)


@each_row(("table", "said"), [
    ({"proxies": ["proxy.example"]}, "no address or network"),
    ({"hosts": ["https://dlq.example"]}, "no host name"),
    ({"groups_header": "X Groups:"}, "no header of groups"),
    ({"groups_header": "X-Forwarded-User"}, "no header of groups"),
    ({"roles": {"admin": ["ada"]}}, "unknown key 'admin' in \\[serve.roles\\]"),
    ({"roles": {"read": [1]}}, "serve.roles.read must be a list of texts"),
    ({"roles": ["read"]}, "\\[serve.roles\\] must be a table"),
])  # fmt: skip
def test_what_means_nothing_in_the_configuration_is_refused(table: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse({"serve": table})


def test_a_deep_link_survives_signing_in_and_the_token_leaves_its_address(serve: Serve) -> None:
    browser = serve(enter=False)
    asked = "/letters?text=m-1&where=attempts+%3E+1"
    unknown = browser.get(asked).text
    assert '<form method="get" action="/letters">' in unknown
    for name, text in (("text", "m-1"), ("where", "attempts &gt; 1")):
        assert f'<input type="hidden" name="{name}" value="{text}">' in unknown
    answer = browser.get(f"{asked}&token={browser.console.sessions.token}")
    assert (answer.status_code, answer.headers["location"]) == (303, asked)
    assert browser.get("/letters?token=of-an-earlier-start").headers["location"] == "/letters"
    assert browser.get("//evil.example/?token=x").headers.get("location", "/") == "/"
