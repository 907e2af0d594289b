"""Who may see and do what: tokens, cookies, proxies, roles."""

import re
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection
from support.consoles import Serve
from support.rows import each_row

from dlq.cli.app import run
from dlq.core.configuration import parse
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Roles
from dlq.web.people import Forged, Person, find_rights, read_proxy
from dlq.web.server import check_host

OPS = {"x-forwarded-user": "ada", "x-forwarded-groups": "ops,staff"}
BEHIND = {
    "proxies": ["10.1.0.0/16"],
    "hosts": ["dlq.example"],
    "groups_header": "X-Forwarded-Groups",
    "roles": {"triage": ["group:ops"]},
}


def test_the_token_leaves_the_address_at_once_for_a_cookie_that_no_script_has(serve: Serve) -> None:
    answer = serve(enter=False).enter()

    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_the_cookie_is_not_the_token(serve: Serve) -> None:
    browser = serve(enter=False)
    assert browser.console.sessions.token not in browser.enter().headers["set-cookie"]


@pytest.mark.parametrize(
    "path", ["/", "/letters", "/audit", "/nothing", "/plans/new", "/?token=wrong", "/?token="]
)
def test_without_a_name_there_is_no_page(serve: Serve, path: str) -> None:
    answer = serve(enter=False).get(path)
    assert answer.status_code == 401
    assert "orders" not in answer.text


def test_a_cookie_of_the_last_start_is_refused(serve: Serve) -> None:
    before, now = serve(), serve(enter=False)
    now.client.cookies = before.client.cookies
    assert before.get("/letters").status_code == 200
    assert now.get("/letters").status_code == 401


def test_who_signs_out_is_unknown_and_their_cookie_counts_no_more(serve: Serve) -> None:
    browser = serve()
    cookies = dict(browser.client.cookies)
    assert browser.post("/logout").status_code == 200
    browser.client.cookies.update(cookies)
    assert browser.get("/letters").status_code == 401


def test_who_comes_by_a_link_of_another_site_is_asked_to_come_again_from_here(serve: Serve) -> None:
    browser = serve(enter=False)
    answer = browser.get("/failures/" + "a" * 32, **{"sec-fetch-site": "cross-site"})
    assert '<meta http-equiv="refresh" content="0; url=/failures/' in answer.text
    assert "refresh" not in browser.get("/failures", **{"sec-fetch-site": "same-origin"}).text


def test_a_header_of_a_listed_proxy_says_who_asks(serve: Serve) -> None:
    answer = serve("10.1.2.3", enter=False, serve=BEHIND).get("/failures", **OPS, host="dlq.example")
    assert answer.status_code == 200
    assert "ada" in answer.text


def test_groups_are_believed_only_by_the_header_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = HTTPConnection(
        {
            "type": "http",
            "client": ("10.1.2.3", 5),
            "headers": [
                (b"x-forwarded-user", b"eve"),
                (b"x-forwarded-groups", b"ops"),
                (b"x-teams", b"Ops,a b"),
            ],
        }
    )
    named = {"X-Teams": {"Ops", "a b"}, None: set()}
    for header, groups in named.items():
        table = {**BEHIND, "groups_header": header} if header else {"proxies": BEHIND["proxies"]}
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


def test_an_address_of_ipv4_within_ipv6_is_the_same_address(serve: Serve) -> None:
    browser = serve("::ffff:10.1.2.3", enter=False, serve=BEHIND)
    assert browser.get("/failures", **OPS, host="dlq.example").status_code == 200


@pytest.mark.parametrize("names", [["ada", "root"], [""], ["a" * 201], ["ada\x01"]])
def test_a_proxy_that_names_nobody_or_several_is_not_believed(serve: Serve, names: list[str]) -> None:
    browser = serve("10.1.2.3", enter=False, serve=BEHIND)
    headers = [("x-forwarded-user", name) for name in names]
    answer = browser.client.get("/failures", headers=[("host", "dlq.example"), *headers])
    assert answer.status_code == 400


@each_row(
    "headers",
    [
        [(b"x-forwarded-user", b"eve"), (b"x-forwarded-groups", b"staff"), (b"x-forwarded-groups", b"ops")],
        [(b"x-forwarded-user", b"eve"), (b"x-forwarded-user", b"ada")],
        [(b"x-forwarded-user", b"ad\xff")],
        [(b"x-forwarded-user", b"eve"), (b"x-forwarded-groups", b"ops,\xff")],
        [(b"x-forwarded-user", "\xa0".encode())],
        [(b"x-forwarded-user", b"ada ")],
        [(b"x-forwarded-user", b"eve, ada")],
        [(b"x-forwarded-user", b"eve,ada")],
        [(b"x-forwarded-user", b"eve"), (b"x-forwarded-groups", b"staff, ops")],
        [(b"x-forwarded-user", b"eve"), (b"x-forwarded-groups", b"staff,,ops")],
        [(b"x-forwarded-user", b"eve"), (b"x-forwarded-groups", b"o\tps")],
    ],
)
def test_what_a_client_could_have_added_is_not_believed(headers: list[tuple[bytes, bytes]]) -> None:
    asked = HTTPConnection({"type": "http", "client": ("10.1.2.3", 5), "headers": headers})
    with pytest.raises(Forged):
        read_proxy(asked, parse({"serve": BEHIND}).serve)


@pytest.mark.parametrize("name", ["X_Forwarded_User", "X-Forwarded_User", "X-Forwarded-User-", "Remote-User"])
def test_a_header_that_only_looks_like_the_proxy_s_says_nothing(serve: Serve, name: str) -> None:
    browser = serve("10.1.2.3", enter=False, serve=BEHIND)
    assert browser.get("/failures", **{name: "ada", "host": "dlq.example"}).status_code == 401


@pytest.mark.parametrize("name", ["voilà", "Å", "Ωmega", "ada lovelace"])
def test_a_name_is_what_the_proxy_says_to_its_last_letter(serve: Serve, name: str) -> None:
    browser = serve("10.1.2.3", enter=False, serve=BEHIND)
    headers = [(b"host", b"dlq.example"), (b"x-forwarded-user", name.encode())]
    assert f">{name}<" in browser.client.get("/failures", headers=headers).text.replace("</summary", "<")


@pytest.mark.parametrize(
    ("name", "groups", "rights"),
    [
        ("ada", ["ops"], {"read", "triage"}),
        ("eve", ["staff"], {"read", "apply"}),
        ("group:ops", [], {"read"}),
        ("*", [], {"read"}),
        ("ADA", ["OPS"], {"read"}),
    ],
)
def test_rights_are_by_exact_names_and_groups(name: str, groups: list[str], rights: set[str]) -> None:
    roles = Roles(triage=("group:ops",), apply=("eve",))
    assert find_rights(Person(name, frozenset(groups), "s", "proxy"), roles) == rights


def test_who_may_do_anything_may_read_and_others_may_not() -> None:
    roles = Roles(read=("ada",), plan=("bob",))
    found = {
        name: find_rights(Person(name, frozenset(), "s", "proxy"), roles) for name in ("ada", "bob", "eve")
    }
    assert found == {"ada": {"read"}, "bob": {"read", "plan"}, "eve": set()}


def test_without_configuration_everything_is_read_only(serve: Serve) -> None:
    browser = serve(serve={})
    assert browser.get("/letters").status_code == 200
    for path in (
        "/failures/" + "a" * 32 + "/note",
        "/plans",
        "/pull",
        "/analyze",
        "/failures/" + "a" * 32 + "/dismiss",
    ):
        answer = browser.post(path, {"text": "x", "reason": "x"})
        assert (path, answer.status_code) == (path, 403)
        assert "[serve] roles." in answer.text


def test_what_somebody_may_not_do_is_shown_switched_off_with_the_reason(serve: Serve) -> None:
    text = serve(serve={}).get("/failures/" + "aa" * 16).text
    assert (
        "may not triage failures and dismiss letters: [serve] roles.triage in dlq.toml says who may" in text
    )
    assert re.search("<button[^>]* disabled>Assign</button>", text)


def test_who_may_not_read_sees_no_page(serve: Serve) -> None:
    answer = serve(serve={"roles": {"read": ["group:staff"]}}).get("/letters")
    assert answer.status_code == 403
    assert "1111" not in answer.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "dlq.example"])
def test_listening_to_others_needs_a_name_in_the_configuration(host: str) -> None:
    with pytest.raises(UsageError, match=r"--host .*\[serve\] hosts"):
        check_host(parse({}), host)
    check_host(parse({"serve": {"hosts": ["dlq.example"]}}), host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.1"])
def test_listening_to_this_host_alone_needs_nothing(host: str) -> None:
    check_host(parse({}), host)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"proxies": ["proxy.example"]}, "no address or network"),
        ({"hosts": ["https://dlq.example"]}, "no host name"),
        ({"groups_header": "X Groups:"}, "no header of groups"),
        ({"groups_header": "X-Forwarded-User"}, "no header of groups"),
        ({"roles": {"admin": ["ada"]}}, "unknown key 'admin' in \\[serve.roles\\]"),
        ({"roles": {"read": [1]}}, "serve.roles.read must be a list of texts"),
        ({"roles": ["read"]}, "\\[serve.roles\\] must be a table"),
    ],
)
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
