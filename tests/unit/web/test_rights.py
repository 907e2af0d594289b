"""Every address against every right, and what somebody who sees letters masked can find out by asking."""

import re
from typing import NoReturn
from urllib.parse import quote

import pytest
from support.archives import letter, write_analysis, write_segment
from support.consoles import LETTER, TIMEOUT, Browser, Serve

from dlq.archive.storage.store import LocalStore
from dlq.core.errors import UsageError
from dlq.web import agents, agents_by_http
from dlq.web.jobs import Jobs
from dlq.web.pages import ROUTES, Route
from dlq.web.people import RIGHTS

MASKED = {"roles": {right: ["*"] for right in RIGHTS if right != "unmask"}}
SECRET = "jane.doe@example.com"


def ask(browser: Browser, route: Route) -> int:
    """The status of a request that is meant well, but for who sends it."""
    address = re.sub(r"\{\w+\}", TIMEOUT, route.path)
    if route.method == "GET":
        return browser.get(address).status_code
    return browser.post(address, {"text": "x", "reason": "x", "act": "undo"}, "/failures").status_code


@pytest.mark.parametrize("right", RIGHTS)
def test_an_address_answers_only_who_has_its_right(
    serve: Serve, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "start", begin_nothing)
    others = {"read": ["*"] if right == "read" else ["nobody"]}
    browser = serve(serve={"roles": {**others, right: ["*"]}})
    for route in ROUTES:
        may = route.right in (right, "read")
        assert (ask(browser, route) == 403) is not may, route


def begin_nothing(*_words: object) -> NoReturn:
    """Whether somebody may begin a command is known before it begins."""
    raise UsageError("a test begins no commands")


def test_no_address_answers_who_has_no_name(serve: Serve) -> None:
    browser = serve(enter=False, serve=MASKED)
    for route in ROUTES:
        address = re.sub(r"\{\w+\}", TIMEOUT, route.path)
        answer = browser.client.request(route.method, address, follow_redirects=False)
        assert answer.status_code == 401, route


def test_every_tool_that_proposes_has_a_right_of_its_own() -> None:
    assert {tool.__name__ for tool in agents.PROPOSING} == agents_by_http.CHANGES.keys()


def count(browser: Browser, query: str) -> str:
    """How many letters a filter finds, as the page says; the status where there is no answer."""
    answer = browser.get(f"/letters?{query}")
    found = re.search(r"with all ([\d,]+) where none is", answer.text)
    return found[1] if found else str(answer.status_code)


GUESSES = [
    "text={}", "key={}", "message_id={}", "origin={}", "exception_class={}",
    "where=exception_message like '%25{}%25'",
    "where=key like '{}%25'", "where=try(decode(body)) like '%25{}%25'", "where=headers['x-customer'] = '{}'",
    "where=letters::varchar like '%25{}%25'", "where=starts_with(to_json(letters)::varchar, '{}')",
    "where=record_id in (select record_id from records where contains(key, '{}'))",
    "where=exists(from records where contains(key, '{}'))", "where=contains(masked(key), '{}')",
    "where=COLUMNS(*)::varchar like '%25{}%25'", "where=cast(key as int) = 1 or key = '{}'",
]  # fmt: skip


@pytest.fixture
def keyed(store: LocalStore) -> LocalStore:
    """A letter whose every text holds what is masked."""
    one = "e" * 32
    told = dict.fromkeys(("key", "message_id", "correlation_id", "origin", "failure_text"), SECRET)
    write_segment(store, "p-2", [letter(9, record_id=one, body=SECRET.encode(), **told)])
    said = {"cause": "application_error", "advice": "replay", "fingerprint": "ee" * 16, "rule": "framework"}
    said |= {"exception_class": SECRET, "exception_message": SECRET, "origin": SECRET}
    write_analysis(store, "20260103T000000", [{"record_id": one, **said}])
    return store


MUCH_OF_LITTLE = [
    "length(replace(cause, 'a', 'aaaa')) > 1", "repeat('x', 3000000000) = source",
    "lpad(source, 1000000000, 'x') = ''", "rpad(source, 1000000000, 'x') = ''",
    "length(list_resize(split(source, ''), 1000000000)) > 1", "length(range(1000000000)) > 1",
    "length(generate_series(1, 1000000000)) > 1", "printf('%1000000000d', attempts) = ''",
    "format('{:>1000000000}', source) = ''", "bar(1, 0, 1, 1000000000) = ''",
    "length(bitstring('1', 1000000000)) > 1", "regexp_replace(source, '', 'aaaa', 'g') = ''",
    "length([x for x in range(1000000000)]) > 1", "list_reduce([1, 2], (x, y) -> x + y) = 1",
    "(select count(*) from range(100000) a, range(100000) b) > 1",
    "exists(with recursive r as (select 1 n union all select n + 1 from r) from r where n = 0)",
    "source in (select repeat(source, 1000000000) from letters)", "count(*) over () > 1",
    "getenv('HOME') = ''",
]  # fmt: skip


@pytest.mark.parametrize("sees_all", [False, True])
def test_no_condition_makes_long_texts_of_short_ones(serve: Serve, sees_all: bool) -> None:
    browser = serve(serve={"roles": {"read": ["*"], "unmask": ["*"] if sees_all else []}})
    for condition in MUCH_OF_LITTLE:
        answer = browser.get(f"/letters?where={quote(condition)}")
        assert answer.status_code == 400, condition
        assert "the condition " in answer.text, condition
    assert count(browser, "where=length(upper(cause)) > 1") == "4"


def test_no_change_is_of_such_a_condition_either(serve: Serve) -> None:
    browser, sent = serve(), {"where": MUCH_OF_LITTLE[1], "act": "dismiss", "reason": "x"}
    assert browser.post("/letters/chosen", sent).status_code == 409
    assert browser.get(f"/plans/new?where={quote(MUCH_OF_LITTLE[1])}").status_code == 400


@pytest.mark.parametrize("guess", GUESSES)
def test_a_filter_tells_nothing_of_what_is_masked(serve: Serve, keyed: LocalStore, guess: str) -> None:
    browser = serve(serve=MASKED)
    for right, wrong in ((SECRET, "jane.dox@example.com"), (SECRET[:7], "jane.dx"), (SECRET[:4], "jxne")):
        assert count(browser, guess.format(right)) == count(browser, guess.format(wrong)), right


def test_who_sees_letters_as_they_are_may_ask_for_all_of_it(serve: Serve, keyed: LocalStore) -> None:
    for query in (f"where=key = '{SECRET}'", f"where=try(decode(body)) like '%25{SECRET}'", "text=jane.doe"):
        assert count(serve(), query) == "1", query


def test_what_is_shown_can_be_searched_for(serve: Serve) -> None:
    masked, plain = serve(serve=MASKED), serve()
    of_columns = "where=cause = 'application_error' and attempts is null"
    for query in ("text=no+answer+for", "text=BOOM", "text=1111", of_columns):
        assert count(masked, query) == count(plain, query) != "0", query


def test_a_search_for_a_masked_id_does_not_say_that_there_is_no_such_letter(
    serve: Serve, keyed: LocalStore
) -> None:
    for browser, says in ((serve(serve=MASKED), True), (serve(), False)):
        assert ("Masked ids and keys are not searched." in browser.get("/letters?text=nowhere").text) == says


def test_what_is_done_to_letters_tells_nothing_either(serve: Serve, keyed: LocalStore) -> None:
    browser = serve(serve=MASKED)
    for name, text in (("where", f"key = '{SECRET}'"), ("key", SECRET), ("text", "jane")):
        for path in ("/plans", "/letters/chosen"):
            sent = {name: text, "act": "dismiss", "reason": "x"}
            assert browser.post(path, sent).status_code == 409, (path, name)
        assert browser.get(f"/plans/new?{name}={quote(text)}").status_code == 400, name


def test_who_may_not_see_a_letter_does_not_learn_by_editing_it(serve: Serve) -> None:
    guess = {"header_name": ["x-customer", "trace"], "header_value": [SECRET, "t-1"]}
    answer = serve(serve=MASKED).post(f"{LETTER}/edit", guess)
    assert answer.status_code == 409
    assert "nothing is changed" not in answer.text


def test_an_error_is_masked_too(serve: Serve) -> None:
    answer = serve().get(f"/letters?where={quote('cast(exception_message as int) = 1')}")
    assert answer.status_code == 400
    assert SECRET not in answer.text
