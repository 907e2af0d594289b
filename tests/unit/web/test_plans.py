"""Plans by the page: made, edited, approved by somebody else, and what is shown of them."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Response
from support.builders import in_file
from support.consoles import FAILURE, IDS, LETTER, NULL, TIMEOUT, Browser, Fields, Serve, name_person

from dlq.connectors.memory import broker_at
from dlq.operations.workspace import Notes, open_workspace
from dlq.replay import ledger
from dlq.replay.plans import planfile
from dlq.web import agents
from dlq.web.people import RIGHTS

ADA, BOB = name_person("ada"), name_person("bob@example.com")


@pytest.fixture
def browser(serve: Serve, shop: dict[str, Any]) -> Browser:
    """Behind a proxy, with an embedded broker, where plans want another person's consent."""
    roles = {right: ["*"] for right in RIGHTS}
    billing = {"sources": ["orders"], "because": "it knows orders for 7 days"}
    known = {"replay": {"approval": True}, "consumers": {"billing": billing}, **shop}
    return serve(enter=False, serve={"proxies": ["127.0.0.1"], "roles": roles}, **known)


def make_plan(browser: Browser, fields: Fields) -> str:
    answer = browser.post("/plans", fields, "/plans/new", **ADA)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"]).removeprefix("/plans/")


def digest_of(browser: Browser, plan: str) -> str:
    return re.findall(r'name="digest" value="(\w+)"', browser.get(f"/plans/{plan}", **BOB).text)[0]


def post(browser: Browser, plan: str, act: str, fields: Fields, who: dict[str, str] = BOB) -> Response:
    return browser.post(f"/plans/{plan}/{act}", fields, "/plans/new", **who)


def listed(page: str) -> list[str]:
    """The letters of a plan, in its order."""
    return re.findall(r'href="/letters/(\w{32})"', page.partition('<h2 id="letters">')[2])


def test_a_plan_of_the_page_says_who_made_it_and_what_it_leaves_out(browser: Browser) -> None:
    plan = make_plan(browser, {"id": IDS[:2], "reason": "mended in 2.4.1"})
    header = planfile.load_checked(browser.console.look.workspace.store, plan)
    assert (header.actor, header.reason, header.letters) == ("ada [proven]", "mended in 2.4.1", 2)
    text = browser.get(f"/plans/{plan}", **ADA).text
    assert listed(text) == IDS[:2]
    assert re.search("queue:orders.*on shop; read by: orders<", text)
    assert header.digest in text
    for page in (LETTER, f"/plans/{plan}", FAILURE):
        assert "(it knows orders for 7 days)" in browser.get(page, **ADA).text, "a consumer's owner says so"


def test_filters_choose_letters_for_a_plan_too_and_what_they_died_of_is_masked(browser: Browser) -> None:
    text = browser.get(f"/plans/{make_plan(browser, {'failure': NULL})}", **ADA).text
    assert listed(text) == [IDS[3]]
    assert "Boom: no stock of ?" in text
    assert "SKU-1" not in text


def test_who_made_a_plan_cannot_approve_it_and_sees_why(browser: Browser) -> None:
    plan = make_plan(browser, {"id": IDS[0]})
    text = html.unescape(browser.get(f"/plans/{plan}", **ADA).text)
    assert f"ada [proven] made plan {plan}: another person has to approve it" in text
    for who in (ADA, name_person("ADA@elsewhere")):
        assert post(browser, plan, "approve", {"digest": digest_of(browser, plan)}, who).status_code == 409


def test_another_person_s_consent_is_bound_to_the_digest_that_was_shown_and_ends(
    browser: Browser, wait: Callable[[float], None]
) -> None:
    plan = make_plan(browser, {"id": IDS[0]})
    digest, unasked = digest_of(browser, plan), "is not approved, and [replay] approval wants it"
    assert unasked in browser.get(f"/plans/{plan}", **BOB).text
    assert post(browser, plan, "apply", {"digest": digest}).status_code == 409
    others: list[dict[str, str]] = [{}, *({"digest": one} for one in ("", "0" * 64, digest[:8], plan))]
    for wrong in others:
        answer = post(browser, plan, "approve", wrong)
        assert (answer.status_code, "has changed since it was shown" in answer.text) == (409, True)
    assert post(browser, plan, "approve", {"digest": digest, "reason": "seen"}).status_code == 303
    settings, store = browser.console.settings.ledger, browser.console.look.workspace.store
    given = ledger.events(settings, store)[-1]
    assert (given.action, given.actor, given.value) == ("approve", "bob@example.com [proven]", digest)
    assert "is not approved" not in browser.get(f"/plans/{plan}", **BOB).text
    for wrong in others:
        answer = post(browser, plan, "apply", wrong)
        assert (answer.status_code, "has changed since it was shown" in answer.text) == (409, True)
    assert browser.console.jobs.list_all() == []
    assert "for your consent" not in browser.get("/plans", **BOB).text
    wait(2)
    assert "for your consent" in browser.get("/plans", **BOB).text


def draft(browser: Browser) -> dict[str, str | list[str]]:
    """What the form of a letter holds, as a browser would send it."""
    text = browser.post(f"{LETTER}/draft", {}, "/plans/new", **ADA).text
    names = [html.unescape(one) for one in re.findall(r'name="header_name" value="([^"]*)"', text)]
    values = re.findall(r'<textarea name="header_value"[^>]*>\n?(.*?)</textarea>', text, re.DOTALL)
    (body,) = re.findall(r'<textarea name="body"[^>]*>\n?(.*?)</textarea>', text, re.DOTALL)
    headers = [html.unescape(value) for value in values]
    return {"header_name": names, "header_value": headers, "body": html.unescape(body)}


def test_a_letter_is_edited_before_its_replay_and_the_plan_shows_the_difference(browser: Browser) -> None:
    fields = draft(browser)
    answer = browser.post(f"{LETTER}/edit", fields, "/plans/new", **ADA)
    assert (answer.status_code, "nothing is changed" in answer.text) == (409, True)
    twice = {"header_name": ["trace", "trace"], "header_value": ["t-1", "t-2"]}
    answer = browser.post(f"{LETTER}/edit", {**fields, **twice}, "/plans/new", **ADA)
    assert (answer.status_code, "these are not the headers" in answer.text) == (409, True)
    fields["body"] = str(fields["body"]).replace("jane.doe@example.com", "ann@example.com")
    answer = browser.post(f"{LETTER}/edit", {**fields, "reason": "wrong mail"}, "/plans/new", **ADA)
    assert answer.status_code == 303, answer.text
    text = html.unescape(browser.get(answer.headers["location"], **ADA).text)
    assert "1 letter, 1 of them edited" in text
    assert "body: 44 -> 39 bytes" in text
    assert "ann@example.com" not in text, "differences are masked, too"


def test_what_an_edit_changes_is_masked_as_the_letter_is(serve: Serve, shop: dict[str, Any]) -> None:
    browser = serve(mask={"show": ["header:trace"]}, **shop)
    fields = {
        "header_name": ["x-customer", "trace"], "header_value": ["Jane Roe", "t-2"],
        "body": '{"order": 2, "mail": "Jane Roe"}',
    }  # fmt: skip
    answer = browser.post(f"{LETTER}/edit", fields, "/plans/new")
    assert answer.status_code == 303, answer.text
    page = html.unescape(browser.get(answer.headers["location"]).text)
    assert "header x-customer: text of 20 -> text of 8" in page
    assert "header trace: t-1 -> t-2" in page
    workspace = open_workspace(browser.console.settings, Notes(), "agent x for ann")
    told = agents.plan_status(workspace, answer.headers["location"].removeprefix("/plans/"))
    for shown in (page, json.dumps(told)):
        assert "Jane" not in shown
        assert "jane.doe" not in shown


def test_where_letters_go_is_masked_wherever_it_is_shown(
    serve: Serve, shop: dict[str, Any], tmp_path: Path
) -> None:
    broker_at(in_file(tmp_path)).declare("of jane.doe@example.com")
    browser = serve(**shop)
    answer = browser.post("/plans", {"id": IDS[0], "to": "queue:of jane.doe@example.com"}, "/plans/new")
    plan = answer.headers["location"]
    narrow = serve(**shop, replay={"targets": ["orders*"]})
    assert "lets letters go to orders*" in html.unescape(narrow.get(plan).text)
    for path in ("/", "/plans", plan, plan.replace("plans", "replays")):
        for one in (browser, narrow):
            assert "jane.doe" not in one.get(path).text, path
    assert "queue:of ?" in browser.get("/").text


def test_a_broker_that_is_away_is_said_in_its_words(serve: Serve, shop: dict[str, Any]) -> None:
    away = {"shop": {"kind": "rabbitmq", "url": "amqp://127.0.0.1:1/", "timeout": "1s"}}
    there = serve(**shop | {"brokers": away})
    answer = there.post("/plans", {"id": IDS[0]}, "/plans/new")
    assert answer.status_code in (502, 303)
    assert there.post("/depths").status_code == 303
    assert "127.0.0.1:1" in there.get("/").text


def proposed_by_agent(browser: Browser, **where: str) -> str:
    workspace = open_workspace(browser.console.settings, Notes(), "agent x for ann")
    return str(agents.propose_plan(workspace, reason="mended in 2.4.1", failure=TIMEOUT, **where)["plan"])


def test_who_approves_sees_what_died_of_what_and_where_an_agent_would_send_it(browser: Browser) -> None:
    plan = proposed_by_agent(browser, to="queue:orders")
    text = html.unescape(browser.get(f"/plans/{plan}", **BOB).text)
    told = text.partition('id="act"')[0]
    for one in ("proposed by an agent", "Boom: no answer for ?", "application_error",
                f'href="{FAILURE}"', "may go back", "An example", "aaaaaaaaaaaa"):  # fmt: skip
        assert one in told, (one, told)
    assert "target chosen by an agent" in text
    assert re.search(r'action="[^"]*/approve".*data-key="a"', text, re.DOTALL)
    assert "chosen by an agent" not in browser.get(f"/plans/{proposed_by_agent(browser)}", **BOB).text


def test_what_waits_for_my_consent_stands_first_until_it_is_given(browser: Browser) -> None:
    plan = make_plan(browser, {"id": IDS[0]})
    told = f'Waits for your consent</h2>.*?href="/plans/{plan}"'
    for page in ("/", "/plans"):
        assert re.search(told, browser.get(page, **BOB).text, re.DOTALL), page
        assert "Waits for your consent" not in browser.get(page, **ADA).text, page
    post(browser, plan, "approve", {"digest": digest_of(browser, plan)})
    for page in ("/", "/plans"):
        assert "Waits for your consent" not in browser.get(page, **BOB).text, page
    text = browser.get(f"/plans/{plan}", **BOB).text
    assert re.search(r"<button[^>]* disabled>Approve</button> <small class=.why.>plan \S+ is approved", text)
