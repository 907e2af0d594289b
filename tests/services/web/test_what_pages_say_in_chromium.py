"""What a page says is so, in a real browser: of what it cannot know, of what was sent before, of what is in
doubt, of what somebody consents to, and of what became of a form."""

import os
import re
import socket
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from support.servers.chromium import chromium
from support.servers.person import Person
from support.serving import EVERYTHING, put_in_doubt, run, write_archive
from support.waiting import eventually

from dlq.archive.store import LocalStore
from dlq.connectors.base import Consumption, Target
from dlq.connectors.memory import MemoryConnector, broker_at
from dlq.core import patience
from dlq.core.configuration import parse
from dlq.replay import planfile
from dlq.web.app import make_app
from dlq.web.look import Kept
from dlq.web.server import make_console

LETTERS = 10
MORE = f"""{EVERYTHING}
[serve]
proxies = ["127.0.0.1"]
[replay]
approval = true
"""
WHY = "the broker closed the connection before it answered"


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The pages, served by this process, so that a test may slow down what it reads; their port."""
    config = folder / "dlq.toml"
    console = make_console(parse(tomllib.loads(config.read_text()), os.environ), str(config), 0)
    server = uvicorn.Server(uvicorn.Config(make_app(console, log=False), lifespan="off", log_config=None))
    server.servers = []
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Letters that nothing explains, and what lies in their queue now."""
    made: Path = tmp_path_factory.mktemp("said")
    write_archive(made, LETTERS, MORE)
    broker_at(f"memory://{made}/broker.db").declare("elsewhere")
    return made


@pytest.fixture(scope="module")
def person(folder: Path) -> Iterator[Person]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        with served(folder) as port, chromium() as browser:
            yield Person(browser, port)


@pytest.fixture(autouse=True)
def ada(person: Person) -> None:
    person.sign_in("ada")


def make_plan(folder: Path, where: str, *more: str) -> str:
    """A plan of the letters that fulfil a condition."""
    asked = ("replay", "plan", "--where", where, "--any-advice", "--to", "queue:orders", "--as", "bob")
    return str(run(folder, *asked, *more)["plan"])


def send(folder: Path, where: str) -> str:
    """A plan of which all is confirmed."""
    plan = make_plan(folder, where)
    run(folder, "replay", "approve", plan, "--as", "eve")
    run(folder, "replay", "apply", plan)
    return plan


def plan_on_page(person: Person, text: str, to: str, *ticked: str) -> str:
    person.open(f"/plans/new?text={text}")
    person.fill("to", to)
    for name in ("any_advice", *ticked):
        person.tick(name)
    person.click("Make the plan", r"/plans/\d")
    return person.place


def test_a_page_that_has_no_answer_says_so_and_shows_nothing_as_empty(
    person: Person, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_slowly(kept: Kept, name: str) -> Any:
        if name in ("execute", "sql"):
            kept.connection.execute("SELECT count(*) FROM range(1000000000000) a, range(1000000)")
        return getattr(kept.connection, name)

    monkeypatch.setattr(patience, "QUESTION", 0.2)
    monkeypatch.setattr(Kept, "__getattr__", ask_slowly)
    with served(folder) as port:
        text = Person(person.browser, port).open("/")
    assert "there is no answer" in text
    assert "Nothing is captured yet" not in text
    assert "Pull now" not in text


def test_what_went_back_to_another_target_is_left_out_unless_it_is_wanted_again_and_who_approves_sees_it(
    person: Person, folder: Path
) -> None:
    send(folder, "message_id = 'm-1'")
    plan_on_page(person, "m-1", "queue:elsewhere")
    assert re.search(r"sent_elsewhere\s+already sent to another target.*\t1", person.text)
    again = plan_on_page(person, "m-1", "queue:elsewhere", "again")
    person.sign_in("eve")
    assert "it goes once more: confirmed at queue:orders\t1" in person.open(again)


@pytest.mark.parametrize(
    ("said", "state", "ids"),
    [("Was sent", r"confirmed\s+2", "'m-2', 'm-3'"), ("Hold", r"held\s+1", "'m-4', 'm-5'")],
)
def test_who_knows_says_what_became_of_a_letter_in_doubt(
    person: Person, folder: Path, said: str, state: str, ids: str
) -> None:
    plan = make_plan(folder, f"message_id in ({ids})")
    put_in_doubt(folder, plan, 1, WHY, confirmed=1)
    assert WHY in person.open(f"/replays/{plan}")
    person.tick("id")
    person.click(said, "/replays/")
    person.wait_for(rf"{state}\s(?s:.*)nothing is in doubt")


def test_a_ramp_that_was_stopped_is_not_red_any_more_once_the_rest_was_sent(
    person: Person, folder: Path
) -> None:
    plan = make_plan(folder, "message_id = 'm-6'")
    run(folder, "replay", "approve", plan, "--as", "eve")
    steps = [{"sent": 1, "came_back": 1, "evidence": "consumed"}]
    planfile.keep_ramp(LocalStore(str(folder / "archive")), plan, steps, "harm")
    assert "The ramp was stopped" in person.open(f"/replays/{plan}")
    person.tick("ramp", on=False)
    person.click("Send", "/replays/")
    person.wait_for("1 of 1 confirmed")
    assert "The ramp was stopped" not in person.text


def test_what_nobody_consumes_is_read_by_nobody(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def consumption(_self: object, targets: Sequence[Target]) -> dict[Target, list[Consumption]]:
        return {one: [Consumption("orders", 3, 0)] for one in targets}

    monkeypatch.setattr(MemoryConnector, "consumption", consumption)
    plan_on_page(person, "m-7", "queue:orders")
    assert "read by: nobody" in person.text


def test_the_books_add_up_with_what_is_in_doubt(
    person: Person, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FRESH", 0.0)
    put_in_doubt(folder, make_plan(folder, "message_id in ('m-8', 'm-9')"), 2, WHY)
    text = person.open("/books")
    names = re.search(r"Source\s+(captured.*)\s+Balanced", text)
    counts = re.search(r"^orders\s+([\d\s]+)", text, re.MULTILINE)
    assert names, text
    assert counts, text
    row = dict(zip(names[1].split("\t"), map(int, counts[1].split()), strict=True))
    captured, lost = row.pop("captured"), row.pop("lost")
    assert (captured, row["in doubt"], lost) == (sum(row.values()), 2, 0)


def test_who_approves_sees_what_it_is_about_and_approves_once(person: Person, folder: Path) -> None:
    plan = make_plan(folder, "message_id = 'm-0'", "--as", "agent helper for ada", "--reason", "mended")
    person.sign_in("eve")
    for page in ("/", "/plans"):
        waits = person.open(page).partition("Waits for your consent")[2]
        assert re.search(rf"{plan}\s+1\s+queue:orders target chosen by an agent", waits), page
    text = person.open(f"/plans/{plan}")
    for said in ("by agent helper for ada", "proposed by an agent", "“mended”", "An example", "Advice",
                 "queue:orders target chosen by an agent"):  # fmt: skip
        assert said in text, said
    person.browser.type("a")
    assert person.shows("document.activeElement.closest('form[action$=\"/approve\"]') !== null")
    person.click("Approve", "/plans/")
    assert "is approved already" in person.text
    assert plan not in person.open("/").partition("Waits for your consent")[2].partition("Replays")[0]


def test_a_pull_says_what_it_would_do_asks_once_and_shows_its_result_as_a_page(person: Person) -> None:
    person.open("/")
    person.click("Pull now…", "/pull")
    assert re.search(r"orders\s+copy\s+0", person.text)
    person.click("Pull", "/commands/")
    person.wait_for(r"It ended with 0: done\.\s+Result\s+Source\s+pull id")


def test_a_form_that_is_refused_comes_back_filled_with_its_error(person: Person) -> None:
    person.open("/failures")
    person.click(person.find_link("/failures/"), "/failures/")
    person.fill("until", "soon", "/snooze")
    person.fill("reason", "it is known", "/snooze")
    person.browser.run("document.querySelector('form[action$=\"/snooze\"]').submit()")
    person.wait_for("--until soon")
    shown = "[...document.querySelectorAll('.opens [open] input:not([type=hidden])')].map(one => one.value)"
    assert person.browser.run(shown) == ["soon", "", "it is known"]


def test_a_note_stays_whatever_is_said_of_something_else(person: Person) -> None:
    person.open("/failures")
    person.click(person.find_link("/failures/"), "/failures/")
    for action, name, text in (("note", "text", "ask the gateway"), ("assign", "reason", "on duty")):
        person.fill(name, text, f"/{action}")
        person.browser.run(f"document.querySelector('form[action$=\"/{action}\"]').submit()")
        person.wait_for(text)
    aside = person.browser.run("document.querySelector('.aside').innerText")
    assert "“ask the gateway”" in aside
    assert "on duty" not in aside


def test_a_letter_that_is_shown_as_it_is_is_one_look_however_often_it_is_loaded(
    person: Person, folder: Path
) -> None:
    person.open("/letters?text=m-9")
    person.click(person.find_link("/letters/"), "/letters/")
    person.click("Show as it is", ".*/plain")
    assert "order 9" in person.text
    person.browser.run("document.body.dataset.before = 'yes'")
    person.browser.call("Page.reload")
    eventually(lambda: person.shows("!document.body.dataset.before && document.readyState === 'complete'"))
    assert "order 9" in person.text
    looks = run(folder, "query", "select count(*) as n from audit where action = 'unmask'")
    assert looks == [{"n": 1}]
