"""What an agent has proposed for a failure waits on its page until a person does it, in their own name."""

import html
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from support.consoles import FAILURE as PAGE
from support.consoles import IDS, Browser, Serve, name_person
from support.consoles import NULL as OTHER
from support.consoles import TIMEOUT as FAILURE
from support.waiting import PATIENCE

from dlq.core.clock import now
from dlq.core.errors import UsageError
from dlq.core.failures import make_event
from dlq.operations.reading.failures import note_failure
from dlq.operations.replays import proposals
from dlq.operations.replays.plans import PlanWanted
from dlq.operations.replays.proposals import propose_dismissal, propose_note, propose_plan, propose_resolution
from dlq.operations.workspace import Workspace
from dlq.replay import ledger
from dlq.replay.actor import name_agent
from dlq.replay.plans.wanted import Wanted

ADA, EVE = name_person("ada"), name_person("eve")
AGENT = name_agent("claude", "ann@host")


@pytest.fixture
def browser(serve: Serve) -> Browser:
    """Behind a proxy: ada may triage, eve may not."""
    roles = {"read": ["*"], "triage": ["ada"]}
    brokers = {"shop": {"kind": "rabbitmq", "url": "amqp://u@127.0.0.1:1/"}}
    known = {"brokers": brokers, "sources": {"orders": {"broker": "shop", "queue": "orders.dlq"}}}
    return serve(enter=False, serve={"proxies": ["127.0.0.1"], "roles": roles}, **known)


@pytest.fixture
def agent(browser: Browser) -> Workspace:
    return replace(browser.console.look.workspace, name=AGENT)


def said(workspace: Workspace) -> list[tuple[str, str, str, str]]:
    events = ledger.events(workspace.settings.ledger, workspace.store)
    return [(one.actor, one.action, one.value, one.reason) for one in events if one.action != "propose"]


def carry_out(browser: Browser, proposal: str, page: str = PAGE) -> int:
    return browser.post(f"{page}/proposals/{proposal}", {}, PAGE, **ADA).status_code


@pytest.mark.parametrize(
    ("propose", "more", "action", "value"),
    [(propose_note, (), "note", ""), (propose_note, ("bob",), "assign", "bob"),
     (propose_resolution, (), "resolve", ""), (propose_resolution, ("2.4.1",), "resolve", "2.4.1")],
)  # fmt: skip
def test_what_was_proposed_is_said_by_who_carries_it_out_and_waits_no_more(
    browser: Browser, agent: Workspace, propose: Any, more: tuple[str, ...], action: str, value: str
) -> None:
    proposal = propose(agent, FAILURE, "the gateway is down", *more)
    text = html.unescape(browser.get(PAGE, **ADA).text)
    assert f"“the gateway is down” <small>{AGENT}," in text
    assert proposal["command"] in text
    assert carry_out(browser, proposal["proposal"]) == 303
    assert said(agent) == [("ada [proven]", action, value, "the gateway is down")]
    assert "Proposed by agents" not in browser.get(PAGE, **ADA).text
    assert carry_out(browser, proposal["proposal"]) == 409
    assert len(said(agent)) == 1


@pytest.mark.parametrize("owner", [None, "bob"])
def test_two_who_carry_it_out_at_once_say_it_once(
    browser: Browser, agent: Workspace, owner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal, both = propose_note(agent, FAILURE, "the gateway is down", owner)["proposal"], Barrier(2)
    look = proposals.list_proposals

    def see_that_it_waits(workspace: Workspace, failure: str) -> list[proposals.Proposal]:
        found = look(workspace, failure)
        both.wait(PATIENCE)
        return found

    monkeypatch.setattr(proposals, "list_proposals", see_that_it_waits)
    with ThreadPoolExecutor(2) as at_once:
        doing = [at_once.submit(proposals.carry_out, agent, FAILURE, proposal) for _ in range(2)]
        assert all(one.result(PATIENCE) for one in doing)
    assert len(said(agent)) == 1


def test_a_dismissal_closes_the_letters_of_its_failure_alone(browser: Browser, agent: Workspace) -> None:
    proposal = propose_dismissal(agent, FAILURE, "sent anew by hand")
    assert carry_out(browser, proposal["proposal"]) == 303
    text = browser.get("/audit", **ADA).text
    assert len(re.findall(r">ada \[proven\]<.*?>dismiss<.*?sent anew by hand", text)) == 3
    assert "Proposed by agents" not in browser.get(PAGE, **ADA).text
    assert "0 <small>wait" in browser.get(PAGE, **ADA).text
    assert "1 <small>wait" in browser.get(f"/failures/{OTHER}", **ADA).text


def test_what_somebody_has_done_in_a_shell_waits_no_more(browser: Browser, agent: Workspace) -> None:
    propose_note(agent, FAILURE, "the gateway is down")
    propose_note(agent, FAILURE, "and the mirror")
    note_failure(replace(agent, name="bob"), FAILURE, "the gateway is down")
    browser.console.look.forget()
    text = browser.get(PAGE, **ADA).text
    assert text.count(">Carry out<") == 1
    assert "“and the mirror”" in text


def test_who_may_not_triage_sees_it_switched_off_and_is_refused(browser: Browser, agent: Workspace) -> None:
    proposal = propose_note(agent, FAILURE, "the gateway is down")
    text = browser.get(PAGE, **EVE).text
    assert "<button disabled>Carry out</button>" in text
    answer = browser.post(f"{PAGE}/proposals/{proposal['proposal']}", {}, PAGE, **EVE)
    assert answer.status_code == 403
    assert said(agent) == []


def test_without_the_token_of_a_form_and_by_get_nothing_is_carried_out(
    browser: Browser, agent: Workspace
) -> None:
    place = f"{PAGE}/proposals/{propose_note(agent, FAILURE, 'x')['proposal']}"
    assert browser.get(place, **ADA).status_code == 404
    assert browser.post(place, {"form_token": "0" * 64}, PAGE, **ADA).status_code == 403
    assert said(agent) == []


def test_no_other_command_of_a_ledger_is_ever_carried_out(browser: Browser, agent: Workspace) -> None:
    commands = (
        "dlq replay apply 20261125T194219-5ffb28", f"dlq failures note {OTHER} text", "rm -rf /", "'",
        f"dlq dismiss --failure {OTHER} --reason x",
        f"dlq dismiss --failure {FAILURE} --where true --reason x",
    )  # fmt: skip
    events = [make_event(now(), AGENT, FAILURE, "propose", command, "x") for command in commands]
    with ledger.opened(agent.settings.ledger, agent.store) as book:
        book.append(events)
    shown = browser.get(PAGE, **ADA).text
    assert shown.count("Carry out<") == shown.count("<button disabled>Carry out</button>") == len(events)
    of_another = propose_note(agent, OTHER, "x")["proposal"]
    for proposal in (*(one.id for one in events), of_another, "no-such"):
        assert carry_out(browser, proposal) == 409, proposal
    assert said(agent) == []


def test_an_agent_has_as_many_open_proposals_as_a_person_can_look_at(
    browser: Browser, agent: Workspace
) -> None:
    first = propose_note(agent, FAILURE, "look 0")["proposal"]
    told = (f"dlq failures note {FAILURE} 'look {number}'" for number in range(1, 19))
    with ledger.opened(agent.settings.ledger, agent.store) as book:
        book.append([make_event(now(), AGENT, FAILURE, "propose", words, "look") for words in told])
    propose_plan(agent, PlanWanted(IDS, how=Wanted(reason="mended", to="queue:orders")))
    with pytest.raises(UsageError, match=f"20 proposals of {AGENT} wait for a person"):
        propose_dismissal(agent, FAILURE, "x")
    propose_note(replace(agent, name=name_agent("another", "ann@host")), FAILURE, "look")
    assert carry_out(browser, first) == 303
    propose_note(agent, FAILURE, "look once more")


@pytest.mark.parametrize("propose", [propose_note, propose_dismissal, propose_resolution])
def test_the_same_words_for_another_failure_are_not_done_with_it(
    browser: Browser, agent: Workspace, propose: Any
) -> None:
    mine, other = (propose(agent, failure, "of a test")["proposal"] for failure in (FAILURE, OTHER))
    assert carry_out(browser, mine) == 303
    [waits] = proposals.list_proposals(agent, OTHER)
    assert (waits.id, waits.done_by) == (other, None)
    assert carry_out(browser, other, f"/failures/{OTHER}") == 303
    assert "ada [proven]" in {one.done_by for one in proposals.list_proposals(agent, OTHER)}
