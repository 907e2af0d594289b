"""What pages show is what the command line says, and what people do by them stands in the ledger."""

import html
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlencode
from zipfile import ZipFile

import pytest
from support.analyzers import mixed
from support.archives import letter, write_analysis, write_segment
from support.consoles import FAILURE, IDS, LETTER, TIMEOUT, Serve, commands_on, name_person

from dlq.archive import manifests
from dlq.archive.storage.store import LocalStore
from dlq.core import clock
from dlq.operations.workspace import Notes, open_workspace
from dlq.reports.letters.masking import Masker
from dlq.web import agents

CAPTURED = 10**15
CANARY = "jane.doe@example.com"
LISTS = ("/", "/failures", "/letters", "/plans", "/transactions", "/books", "/audit")
BILLING = {"sources": ["ord*"], "replay": "safe", "because": "idempotent"}


def ids_on(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r'href="/letters/([0-9a-f]{32})"', text)))


def failures_on(text: str) -> list[str]:
    return re.findall(r'href="/failures/(\w{32})"', text)


def hidden(page: str) -> dict[str, str]:
    """What the form of a page brings back unseen."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found if name != "form_token"}


def said_of(dlq: Any) -> list[dict[str, Any]]:
    return list(dlq("query", "select * from audit order by done_at"))


@pytest.mark.parametrize("path", [*LISTS, FAILURE, LETTER, "/letters?cause=application_error&source=orders"])
def test_every_page_names_commands_that_run_as_they_stand(serve: Serve, dlq: Any, path: str) -> None:
    words = commands_on(serve().get(path).text)
    assert words
    for one in words:
        if one[0] != "replay" and "--mode" not in one:
            dlq(*one)


@pytest.mark.parametrize("query", [
    "cause=application_error", "cause=none", "failure=aaaaaaaa", "text=NO+ANSWER", "text=22222222",
    "source=orders&attempts=1", "where=record_id+%3C+%273%27+or+record_id+%3E+%274%27&advice=replay",
    "since=1970-01-01T00%3A02%3A00Z", "replay_state=none&where=attempts+%3D+1", "sort=dead_at",
    "sort=-attempts&text=no+answer",
])  # fmt: skip
def test_a_list_of_letters_is_that_of_the_command_it_shows(serve: Serve, dlq: Any, query: str) -> None:
    text = serve().get(f"/letters?{query}").text
    listed = dlq(*commands_on(text)[0])
    assert ids_on(text) == [one["record_id"] for one in listed]
    assert f"{len(listed)} letter" in text


def test_a_command_is_as_short_as_the_search(serve: Serve) -> None:
    words = commands_on(serve().get("/letters?text=NO+ANSWER&sort=-attempts").text)[0]
    assert words == ["ls", "--text", "NO ANSWER", "--sort=-attempts", "--limit", "50"]


def test_pages_follow_each_other_by_key(serve: Serve, store: LocalStore) -> None:
    many = [letter(100 + n // 3, record_id=f"{n:032x}", captured_at=CAPTURED) for n in range(120)]
    write_segment(store, "p-1", many)
    browser = serve()
    for query in ("", "?sort=dead_at", "?sort=-source"):
        seen, path = [], f"/letters{query}"
        while path:
            text = browser.get(path).text
            seen += ids_on(text)
            following = re.search(r'rel="next" href="([^"]+)"', text)
            path = html.unescape(following[1]) if following else ""
        assert len(seen) == len(set(seen)) == 124, query


def test_what_the_terminal_would_refuse_is_refused(serve: Serve) -> None:
    browser = serve()
    for query in (
        "where=nothing", "sort=body", "sort=dead_at&after=x", "where=1%3D1)+or+(", "since=soon", "after=x",
        "failure=zzzz", "source=none",
    ):  # fmt: skip
        answer = browser.get(f"/letters?{query}")
        assert (answer.status_code, 'role="alert"' in answer.text) == (400, True), query


def test_what_is_chosen_stands_there_and_can_be_taken_back(serve: Serve) -> None:
    text = serve().get(f"/letters?failure={TIMEOUT[:8]}&advice=replay").text
    chips = re.findall(r'<a class="chip" href="([^"]*)"><span class="hidden">Without </span>([^<]*)', text)
    assert [(html.unescape(path), said.strip()) for path, said in chips] == [
        ("/letters?advice=replay", "failure: Boom: no answer for ?"),
        ("/letters?failure=aaaaaaaa", "advice: replay"),
    ]


def test_the_lists_of_the_filters_hold_what_letters_have_and_need_no_report(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq.web.pages.now.describe_now", lambda _workspace: pytest.fail("a report is made"))
    browser = serve()
    browser.post("/letters/chosen", {"act": "dismiss", "id": IDS[0], "reason": "sent anew"})
    text = browser.get("/letters").text
    for name, wanted in (("advice", ["replay"]), ("replay_state", ["none", "dismissed"])):
        options = text.partition(f'<select name="{name}">')[2].partition("</select>")[0]
        assert re.findall(r"<option>(\w+)", options) == wanted


def test_a_failure_says_what_it_is_what_to_do_and_what_its_letters_have_in_common(serve: Serve) -> None:
    text = serve(mask={"show": ["header:trace"]}).get(FAILURE).text
    assert "<title>Boom: no answer for" in text
    assert re.search(r'class="button main"[^>]*href="/plans/new\?failure=', text)
    assert re.search(r"<dt>trace</dt><dd>.*t-1.*100 %", text)
    assert "x-customer</dt>" not in text.partition("An example")[0], "what is masked is no trait"


def test_what_is_left_to_do_are_commands_and_links_to_where_it_is_done(serve: Serve, dlq: Any) -> None:
    text, report = serve().get("/").text, dlq("report")
    for step in report["next"]:
        assert shlex.split(step["command"])[1:] in commands_on(text)
    page = text.partition('class="shell"')[0]
    assert f'<a href="/letters/{report["next"][0]["command"].split()[-1]}' in page
    assert '<a href="/plans/new?advice=replay">' in page
    assert "dlq " not in re.sub(r"<[^>]*>", " ", page.partition("<main")[2])


@pytest.mark.parametrize(
    ("action", "fields", "state"),
    [("dismiss", {"reason": "x"}, "new"), ("resolve", {"reason": "x"}, "open"),
     ("assign", {"owner": "ann"}, "open")],
)  # fmt: skip
def test_what_was_done_can_be_undone_at_once(
    serve: Serve, dlq: Any, action: str, fields: dict[str, str], state: str
) -> None:
    browser = serve()
    to = browser.post(f"{FAILURE}/{action}", fields, FAILURE).headers["location"]
    news = browser.get(to).text.partition('class="news"')[2].partition("</form>")[0]
    browser.post(re.findall(r'action="([^"]*)"', news)[0], hidden(news), FAILURE)
    row = dlq("failures", "show", TIMEOUT)
    assert (row["waiting"], row["state"], row["owner"] or "") == (3, state, "")


def test_failures_are_those_of_the_command_and_can_be_filtered(serve: Serve, dlq: Any) -> None:
    browser = serve()
    browser.post(f"{FAILURE}/assign", {"owner": "ann", "reason": "mine"})
    listed = [one["fingerprint"] for one in dlq("failures")]
    for query, found in (("", listed), ("?state=open", [TIMEOUT]), ("?owner=ann", [TIMEOUT])):
        assert failures_on(browser.get(f"/failures{query}").text) == found


def test_whether_each_letter_is_what_was_captured_is_proven_once_somebody_asks(
    serve: Serve, store: LocalStore
) -> None:
    browser = serve()
    assert "The numbers of the books add up" in browser.get("/books").text
    (manifest,) = manifests.list_committed(store)
    Path(store.location, manifest.segment).write_bytes(b"damaged")
    browser.post("/books")
    assert "The books do not balance" in browser.get("/books").text


@pytest.mark.parametrize(
    ("action", "fields", "state"),
    [("assign", {"owner": "ann", "reason": "mine"}, "open"), ("note", {"text": "the gateway"}, "open"),
     ("snooze", {"until": "3d", "reason": "monday"}, "snoozed"), ("reopen", {"reason": "again"}, "open"),
     ("snooze", {"letters": "900", "reason": "few"}, "snoozed"), ("resolve", {"reason": "2.4.1"}, "resolved"),
     ("resolve", {"version": "2.4.1"}, "resolved")],
)  # fmt: skip
def test_what_is_said_of_a_failure_stands_in_the_ledger_under_a_proven_name(
    serve: Serve, dlq: Any, action: str, fields: dict[str, str], state: str
) -> None:
    browser = serve(enter=False, serve={"proxies": ["127.0.0.1"], "roles": {"triage": ["ada"]}})
    answer = browser.post(f"{FAILURE}/{action}", fields, FAILURE, **name_person("ada"))
    assert (answer.status_code, answer.headers["location"]) == (303, FAILURE)
    row = said_of(dlq)[-1]
    assert (row["actor"], row["action"], row["subject"]) == ("ada [proven]", action, TIMEOUT)
    assert dlq("failures", "show", TIMEOUT)["state"] == state
    assert state in browser.get(FAILURE, **name_person("ada")).text


def test_a_failure_says_in_which_version_it_was_resolved_and_what_owners_of_consumers_say_now(
    serve: Serve, wait: Callable[[float], None]
) -> None:
    browser = serve(consumers={"billing": {**BILLING, "holds_for": "1h"}})
    browser.post(f"{FAILURE}/resolve", {"version": "2.4.1"}, FAILURE)
    text = re.sub(r"<[^>]*>", " ", browser.get(FAILURE).text)
    assert "resolved  in 2.4.1" in text
    assert "billing: safe (idempotent); 3 of 3 are older: check_first" in text
    browser = serve(consumers={"billing": {**BILLING, "holds_for": "36000d"}})
    for page in (LETTER, FAILURE):
        assert "are older: check_first" not in browser.get(page).text
    wait(36_000)
    assert "1 of 1 are older: check_first" in browser.get(LETTER).text
    assert "3 of 3 are older: check_first" in browser.get(FAILURE).text


def test_what_time_has_ended_is_over_though_nothing_was_pulled_and_nobody_spoke(
    serve: Serve, wait: Callable[[float], None]
) -> None:
    browser, since = serve(), f"since={clock.now() // 86_400_000_000 + 1}d"
    browser.post(f"{FAILURE}/snooze", {"until": "3d", "reason": "monday"}, FAILURE)
    for asleep, died in ([TIMEOUT], 4), ([], 0):
        assert failures_on(browser.get("/failures?state=snoozed").text) == asleep
        listed = browser.get(f"/letters?{since}").text
        assert (len(ids_on(listed)), f'role="status">{died} letters' in listed) == (died, True)
        assert f"{died} letters chosen" in browser.get(f"/plans/new?{since}").text
        wait(4)


def test_what_is_done_is_done_to_the_letters_that_were_chosen(serve: Serve) -> None:
    browser = serve()
    for asked in (
        {"where": "cause = 'application_error'\r\nand attempts is null"},
        {"key": "a\u200bb"},
        {"where": "key <> 'a\tb\x1b'", "text": "\u202e\\n"},
    ):
        for path in ("/letters", "/plans/new"):
            assert hidden(browser.get(f"{path}?{urlencode(asked)}").text) == asked, path
    first = {"where": "cause = 'application_error'\r\nand fingerprint like 'b%'"}
    again = hidden(browser.get(f"/letters?{urlencode(first)}").text)
    browser.post("/letters/chosen", {**again, "act": "dismiss", "reason": "x"})
    assert ids_on(browser.get("/letters?replay_state=dismissed").text) == IDS[3:]


def test_what_lacks_something_or_would_be_too_much_is_refused_and_nothing_is_written(
    serve: Serve, dlq: Any
) -> None:
    browser = serve()
    odd_numbers = ("-1", "0", "1e3", "٣", "9" * 16, "9" * 5000)
    for place, fields in (
        (f"{FAILURE}/note", {"text": " "}), (f"{FAILURE}/resolve", {}),
        (f"{FAILURE}/snooze", {"reason": "x"}), (f"{FAILURE}/snooze", {"until": "3d"}),
        (f"{FAILURE}/snooze", {"until": "yesterday", "reason": "x"}),
        *((f"{FAILURE}/snooze", {"letters": odd, "reason": "x"}) for odd in odd_numbers),
        ("/letters/chosen", {"act": "dismiss", "id": IDS[:2], "reason": "x" * 2_001}),
        ("/letters/chosen", {"act": "dismiss", "reason": "of all letters, by a click"}),
    ):  # fmt: skip
        assert browser.post(place, fields).status_code == 409, (place, fields)
    assert said_of(dlq) == []


def test_letters_are_dismissed_and_opened_again(serve: Serve, dlq: Any) -> None:
    browser = serve()
    browser.post("/letters/chosen", {"act": "dismiss", "id": IDS[:2], "reason": "sent anew"})
    state = "select record_id from letters where replay_state = 'dismissed' order by 1"
    assert [one["record_id"] for one in dlq("query", state)] == IDS[:2]
    assert ids_on(browser.get("/letters?replay_state=dismissed").text) == IDS[1::-1]
    browser.post("/letters/chosen", {"act": "undo", "source": "orders"})
    assert dlq("query", state) == []


@pytest.mark.parametrize("path", [*LISTS, FAILURE, LETTER, "/letters?text=jane"])
def test_personal_data_is_masked_on_every_page(serve: Serve, path: str) -> None:
    assert CANARY not in serve().get(path).text.replace('value="jane', "")


WORD = "zebracanary"
OF_ALL = (mixed.given_up(WORD), mixed.half(WORD, 0), mixed.dead(), mixed.rejected(WORD),
          mixed.suppressed(1)._replace(physical_id=WORD), mixed.OF_KAFKA[0][0])  # fmt: skip


def test_no_word_of_a_producer_is_in_any_masked_view(store: LocalStore, serve: Serve, dlq: Any) -> None:
    """An id or a key need look like nothing that is masked by its looks."""
    same = {"message_id": WORD, "correlation_id": WORD, "key": WORD, "keys": (WORD,), "body": WORD.encode()}
    for number, one in enumerate(OF_ALL):
        texts = {"headers": {**one.headers, "app": WORD}, "properties": {**one.properties, "KEYS": WORD}}
        own = {"record_id": f"{number:032x}", "captured_at": CAPTURED, "source": f"s{number // 2}"}
        write_segment(store, f"w-{number}", [one._replace(**same, **texts, **own)])
    dlq("analyze")
    dlq("export", "--mask", "all.zip")
    dlq("report", "--mask", "--out", "report.html")
    browser, masker = serve(), Masker()
    seat = open_workspace(browser.console.settings, Notes())
    shown: dict[str, object] = {path: browser.get(path).text for path in LISTS}
    shown["report"] = Path("report.html").read_text()
    shown["agents"] = masker.document(agents.transactions(seat))
    for row in dlq("ls"):
        one, failure = row["record_id"], row["fingerprint"]
        shown[f"show {one}"] = dlq("show", "--mask", one)
        shown[f"agent {one}"] = masker.document(agents.letter(seat, one))
        pages = (f"/letters/{one}", *([f"/failures/{failure}"] if failure else []))
        shown |= {page: browser.get(page).text for page in pages}
    with ZipFile("all.zip") as bundle:
        shown |= {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert [name for name, text in shown.items() if WORD in str(text)] == []


def test_no_address_of_a_page_says_what_is_masked(serve: Serve, store: LocalStore) -> None:
    known = {"state": "pending", "checks": 1}
    rows = [{"unique_key": f"{n:02} of {CANARY}", "record_ids": [f"{n:032x}"], **known} for n in range(60)]
    write_analysis(store, "20260202T000000", [], transactions=rows)
    browser = serve()
    first = browser.get("/transactions").text
    assert CANARY not in html.unescape(unquote_plus(first))
    (following,) = re.findall(r'rel="next" href="([^"]*)"', first)
    assert "51 to 60 of 60" in browser.get(html.unescape(following)).text
    guess = browser.get(f"/transactions?{urlencode({'after': rows[49]['unique_key']})}").text
    assert "1 to 50 of 60" in guess, "who guesses what is masked is told nothing"


def test_to_show_a_letter_as_it_is_is_a_right_of_its_own_that_the_audit_tells(serve: Serve, dlq: Any) -> None:
    without = serve(serve={"roles": {"triage": ["*"], "apply": ["*"], "plan": ["*"]}})
    assert [without.post(f"{LETTER}/{page}").status_code for page in ("plain", "draft")] == [403, 403]
    assert said_of(dlq) == []
    browser = serve()
    for reason in ("ticket 1", "ticket 1", "ticket 2"):  # to load it again is no other look
        assert CANARY in browser.post(f"{LETTER}/plain", {"reason": reason}).text
    assert CANARY in browser.post(f"{LETTER}/draft").text, "who edits it sees it"
    first, second, edited = said_of(dlq)
    told = tuple(first[name] for name in ("about", "subject", "action", "reason"))
    assert told == ("letter", IDS[0], "unmask", "ticket 1")
    assert first["actor"].endswith(" [proven]")
    assert (second["reason"], edited["action"]) == ("ticket 2", "unmask")


def test_the_body_is_seen_as_its_shape_and_as_json_as_text_and_as_bytes_unmasked(serve: Serve) -> None:
    browser = serve()
    assert "&#34;order&#34;: &#34;number&#34;" in browser.get(LETTER).text
    text = browser.post(f"{LETTER}/plain", {"reason": "ticket 4711"}).text
    for name in ("JSON", "As text", "As bytes"):
        assert f"<summary>{name}</summary>" in text
    assert "&#34;order&#34;: 1" in text


def test_what_is_not_there_is_said_to_be_so(serve: Serve, tmp_path: Path) -> None:
    browser = serve()
    for path in ("letters/ffffffff", "failures/ffffffff", "incidents/none", "plans/none", "commands/none"):
        assert browser.get(f"/{path}").status_code == 404, path
    browser = serve(archive=str(tmp_path / "empty"))
    assert "Nothing is captured yet" in browser.get("/").text
    assert [browser.get(path).status_code for path in LISTS] == [200] * len(LISTS)


def test_news_of_a_change_are_shown_once_and_a_note_stays_whatever_is_said_then(serve: Serve) -> None:
    browser = serve()
    browser.post(f"{FAILURE}/note", {"text": "ask the gateway's team"})
    assert "It is open now." in browser.get(FAILURE).text
    assert "It is open now." not in browser.get(FAILURE).text
    browser.post(f"{FAILURE}/assign", {"owner": "ann", "reason": "she is on call"})
    text = html.unescape(browser.get("/failures").text)
    assert "“ask the gateway's team”" in text
    assert "“she is on call”" not in text


REFUSED_FORMS: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "snooze": (f"{FAILURE}/snooze", {"until": "yesterday", "letters": "7", "reason": "monday"},
               ['name="until" value="yesterday"', 'name="letters" value="7"',
                'name="reason" value="monday"']),
    "plan": ("/plans", {"failure": TIMEOUT, "rate": "fast", "to": "queue:a", "again": "1"},
             ['name="rate" value="fast"', 'name="to" value="queue:a"', 'name="again" value="1" checked',
              f'name="failure" value="{TIMEOUT}"']),
    "letters": ("/letters/chosen", {"id": IDS[1], "act": "dismiss", "reason": "x" * 2_001},
                [f'name="reason" value="{"x" * 2_001}"', 'aria-label="Choose 222222222222" checked',
                 "at most 2,000 characters"]),
    "edit": (f"{LETTER}/edit", {"header_name": "trace", "header_value": "t-1", "reason": "look"},
             ['name="reason" value="look"', "nothing is changed", ">\nt-1</textarea>"]),
}  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "kept"), REFUSED_FORMS.values(), ids=REFUSED_FORMS)
def test_a_form_that_is_refused_comes_back_filled_with_its_error(
    serve: Serve, path: str, fields: dict[str, str], kept: list[str]
) -> None:
    answer = serve().post(path, fields)
    assert answer.status_code == 409
    assert 'class="refusal" role="alert"' in answer.text
    for one in kept:
        assert answer.text.count(one) == 1, one
