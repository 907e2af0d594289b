"""The pages in a real browser, of calm days and of a bad night: everybody can read and use them, and no
letter runs anything there, however long or hostile names, headers and stacks are."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.servers.axe import find_violations, read_axe
from support.servers.chromium import Page
from support.servers.person import Person
from support.serving import Server, browsing, import_letters, put_in_doubt, run, serving, write_archive
from support.waiting import eventually

ATTACK = '<script>window.pwned=1</script>"\'><img src=x onerror="window.pwned=1">\u202e{{7*7}}'
VIEWS = [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")]
LISTS = (
    "/", "/failures", "/letters", "/incidents", "/plans", "/transactions", "/books", "/audit", "/plans/new",
    "/pull", "/coverage",
)  # fmt: skip
LETTER: dict[str, Any] = {"broker_kind": "rabbitmq", "queue": "orders.dlq"}
HOSTILE = {
    **LETTER, "body_text": ATTACK, "message_id": ATTACK,
    "headers": {"x-exception-message": ATTACK, "x-exception-fqcn": ATTACK, ATTACK: ATTACK,
                "x-exception-stacktrace": f"java.lang.Boom: {ATTACK}\n\tat com.shop.A.b(A.java:1)"},
}  # fmt: skip
STACK = f"java.lang.{'Very' * 60}Long: {'w' * 900}\n" + f"\tat com.shop.{'p' * 150}.A.b(A.java:1)\n" * 150
LONG = {
    **LETTER, "queue": "q" * 200, "body_text": '{"order": "' + "b" * 5_000 + '"}',
    "headers": {"x-exception-message": "no blank " + "w" * 900, "h" * 250: "v" * 250,
                "x-exception-stacktrace": STACK},
}  # fmt: skip
PLAN = ("replay", "plan", "--any-advice", "--to", "queue:orders", "--where", "message_id like 'mm%'")


def of_this_minute() -> Iterator[dict[str, Any]]:
    """Letters that died one after the other, and go on dying."""
    began = datetime.now(UTC) - timedelta(minutes=1)
    for n in range(50):
        yield {**LONG, "message_id": f"{'m' * 200}{n}", "dead_at": (began + timedelta(seconds=n)).isoformat()}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Over letters, some of them hostile, some in doubt; a plan has a hostile reason, an agent's waits."""
    folder: Path = tmp_path_factory.mktemp("pages")
    write_archive(folder, 60)
    import_letters(folder, [HOSTILE, *of_this_minute()])
    put_in_doubt(folder, run(folder, *PLAN)["plan"], 3, f"no answer from {'w' * 300}")
    run(folder, *PLAN, "--limit", "9", "--as", f"agent {'w' * 300} for ada", "--reason", "w" * 300)
    run(folder, "replay", "plan", "--any-advice", "--to", "queue:orders", "--reason", ATTACK)
    with serving(folder) as found:
        yield found.enter()


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Page]:
    with browsing(server.address) as page:
        yield page


@pytest.fixture
def person(server: Server, browser: Page) -> Person:
    return Person(browser, server.port)


@pytest.fixture(scope="module")
def paths(server: Server) -> list[str]:
    """One of each kind of page."""

    def found(pattern: str, page: str) -> list[str]:
        return list(dict.fromkeys(re.findall(pattern, server.get(page))))

    plans = found(r"/plans/\d{8}T[\w-]+", "/plans")
    assert len(plans) == 3
    incident = found(r'/incidents/[^"?]+', "/incidents")[0]
    command = server.post("/pull", {}, "/pull")
    letters = [found(r"/letters/[0-9a-f]{32}", f"/letters?text={text}")[0] for text in ("pwned", "mmmmmm")]
    replays = [plan.replace("plans", "replays") for plan in plans]
    return [*LISTS, *letters, *found(r"/failures/[0-9a-f]{16,32}", "/failures"), *plans, *replays, incident,
            command]  # fmt: skip


def failure_of(server: Server) -> str:
    return re.findall(r"/failures/[0-9a-f]{16,32}", server.get("/failures"))[0]


def test_the_token_is_neither_in_the_address_nor_in_the_history_nor_in_reach_of_scripts(
    person: Person, browser: Page
) -> None:
    person.open("/")
    assert "token" not in browser.run("location.href")
    assert browser.run("document.cookie + document.referrer") == ""
    entries = browser.call("Page.getNavigationHistory")["entries"]
    assert [entry["url"] for entry in entries if "token" in entry["url"]] == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_axe_finds_nothing_on_any_page_and_none_is_wider_than_its_window(
    person: Person, browser: Page, paths: list[str], width: int, scheme: str
) -> None:
    axe, found = read_axe(), {}
    for path in [*paths, "a draft"]:
        if path == "a draft":
            person.open(next(one for one in paths if one.startswith("/letters/")), width)
            browser.run("document.querySelector('form[action$=\"/draft\"]').submit()")
            person.until("document.querySelector('textarea[name=body]') !== null")
        else:
            person.open(path, width, prefers_color_scheme=scheme)
        wide = browser.run("document.documentElement.scrollWidth > innerWidth")
        if (violations := find_violations(browser, axe, "target-size")) or wide:
            found[path] = violations, wide
    assert found == {}


@pytest.mark.parametrize("width", [1200, 390])
def test_hostile_letters_run_and_load_nothing(
    server: Server, person: Person, browser: Page, paths: list[str], width: int
) -> None:
    browser.problems.clear()
    browser.requests.clear()
    for path in paths:
        person.open(path, width)
        assert browser.run("window.pwned") is None
    assert browser.problems == []
    ours = (f"http://127.0.0.1:{server.port}", "data:,")
    assert all(url.startswith(ours) for url in browser.requests)


def test_what_goes_on_is_said_of_the_time_of_the_last_look(person: Person) -> None:
    said = re.findall(r"going on\b.{12}", person.open("/"))
    assert said
    assert all(re.match(r"going on at (the last|\d\d:\d\d)", one) for one in said), said


@pytest.mark.parametrize(("width", "height"), [(1400, 800), (390, 844)])
def test_the_first_letter_is_in_sight_and_so_is_what_may_be_done(
    person: Person, browser: Page, width: int, height: int
) -> None:
    person.open("/letters?cause=unknown", width, height)
    bottom = "document.querySelector({!r}).getBoundingClientRect().bottom"
    bar = browser.run(bottom.format("#chosen fieldset"))
    assert browser.run(bottom.format("#found tbody tr")) < bar <= height
    assert browser.run("document.querySelector('#ticked').textContent") == "All 60"
    browser.type("j")
    assert person.tab_to("Plan a replay…") <= 5


def test_keys_go_from_row_to_row_and_from_page_to_page(person: Person, browser: Page) -> None:
    person.open("/letters")
    rows = browser.run("[...document.querySelectorAll('#found tbody th a')].slice(0, 3).map(a => a.pathname)")
    focused = "document.activeElement.pathname"
    browser.type("jj")
    assert browser.run(focused) == rows[1]
    browser.type("kx")
    assert browser.run(focused) == rows[0]
    assert browser.run("document.querySelector('#ticked').textContent") == "1 chosen"
    browser.type("/")
    assert browser.run("document.activeElement.name") == "text"
    browser.type("gn")  # is text here
    assert person.place == "/letters"
    browser.run("document.activeElement.blur()")
    browser.type("?")
    assert browser.run("document.querySelector('dialog.keys').open")
    browser.run("document.querySelector('dialog.keys').close()")
    browser.run("Date.now = () => 1e6")  # both keys are of one moment, however busy all is
    browser.type("gf")
    person.until("location.pathname === '/failures' && document.readyState === 'complete'")
    browser.type("j")
    browser.press("Enter", "\r")
    person.until("/^\\/failures\\/\\w/.test(location.pathname) && document.readyState === 'complete'")


def test_who_assigns_a_failure_stands_where_they_were_and_can_undo_it(
    server: Server, person: Person, browser: Page
) -> None:
    failure = failure_of(server)
    person.open(failure)
    browser.type("a")
    browser.press("Tab")
    assert browser.run("document.activeElement.name") == "owner"
    browser.press("Escape")
    closed = "[document.activeElement.innerText, document.querySelector('.opens [open]')]"
    assert browser.run(closed) == ["Assign", None]
    browser.type("a")
    browser.run("document.querySelector('[name=owner]').focus(); document.activeElement.value = ''")
    browser.call("Input.insertText", text="o'hara")
    shown = "document.querySelector('form[action$=assign] .follows code').textContent"
    assert browser.run(shown) == f"dlq failures assign {failure[10:22]} 'o'\"'\"'hara'"
    browser.press("Enter", "\r")
    person.until("document.querySelector('.news')?.innerText.includes(\"o'hara\")")
    person.until("document.activeElement.innerText === 'Assign'")
    browser.run("[...document.querySelectorAll('.news button')].find(b => b.innerText === 'Undo').click()")
    person.until("document.querySelector('.aside')?.innerText.includes('nobody')")


def test_what_was_dismissed_by_hand_is_undone_into_the_same_list(person: Person, browser: Page) -> None:
    person.open("/letters?source=orders&cause=unknown")
    browser.type("jx")
    browser.run("document.querySelector('.up summary').click()")
    browser.run("document.querySelector('.up [name=reason]').value = 'seen'")
    for button, said in (("[value=dismiss]", "1 dismissed."), (".news button.main", "1 open again.")):
        browser.run(f"document.querySelector('{button}').click()")
        person.until(f"document.querySelector('.news')?.innerText.includes('{said}')")
        assert browser.run("location.search") == "?source=orders&cause=unknown"


def test_a_phone_shows_in_the_bar_where_one_is(person: Person, browser: Page) -> None:
    person.open("/audit", 390)
    assert browser.run("document.querySelector('.top [aria-current]').getBoundingClientRect().right") <= 390


def test_a_deep_link_survives_signing_in(server: Server, person: Person, browser: Page) -> None:
    deep = "/failures?state=new"
    browser.call("Network.clearBrowserCookies")
    person.open(deep)
    browser.run(f"document.querySelector('[name=token]').value = {server.address.partition('token=')[2]!r}")
    browser.run("document.querySelector('form').requestSubmit()")
    person.until("document.title === 'Failures – dlq'")
    assert browser.run("location.pathname + location.search") == deep
    browser.problems.clear()  # the browser logs an answer of 401


def test_the_theme_follows_the_system_unless_one_is_chosen(person: Person, browser: Page) -> None:
    paper = "getComputedStyle(document.querySelector('section')).backgroundColor"
    person.open("/", prefers_color_scheme="light")
    light = browser.run(paper)
    browser.run("document.querySelector('[data-theme=dark]').click()")
    dark = browser.run(paper)
    person.open("/failures", prefers_color_scheme="light")
    assert browser.run(paper) == dark != light
    browser.run("document.querySelector('[data-theme=\"\"]').click()")
    assert browser.run(paper) == light


def test_who_points_at_a_time_reads_it_in_their_own_zone(person: Person, browser: Page) -> None:
    browser.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    person.open("/plans")
    point = (
        "document.querySelector('main time').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"
    )
    browser.run(point)
    told = browser.run("document.querySelector('main time').title")
    browser.call("Emulation.setTimezoneOverride", timezoneId="")
    assert re.search(r"GMT\+5:30|IST", told), told


def test_the_command_below_a_form_makes_the_same_plan(server: Server, person: Person, browser: Page) -> None:
    person.open("/plans/new?text=m-17")
    browser.run("document.querySelector('[name=to]').value = ''; document.querySelector('[name=to]').focus()")
    browser.call("Input.insertText", text="queue:orders")
    browser.run("document.querySelector('[name=any_advice]').click()")
    told = shlex.split(browser.run("document.querySelector('.follows code').textContent"))
    assert told == ["dlq", "replay", "plan", "--text", "m-17", "--to", "queue:orders", "--any-advice"]
    assert run(server.folder, *told[1:])["targets"] == {"queue:orders": 1}


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_the_whole_way_by_keyboard_alone(
    server: Server, person: Person, browser: Page, scripts: bool
) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=not scripts)
    try:
        person.open("/letters?text=m-" + ("1" if scripts else "2"))
        person.tab_to("Plan a replay…")
        browser.press("Enter", "\r")
        person.until("location.pathname === '/plans/new' && document.readyState === 'complete'")
        person.tab_to("to")
        browser.call("Input.insertText", text="queue:orders")
        person.tab_to("any_advice")
        browser.press(" ", " ")
        person.tab_to("Make the plan")
        browser.press("Enter", "\r")
        person.until("/^\\/plans\\/\\d/.test(location.pathname) && document.readyState === 'complete'")
        person.tab_to("ramp")
        browser.press(" ", " ")
        person.tab_to("Send")
        browser.press("Enter", "\r")
        person.until("/^\\/replays\\//.test(location.pathname)")
        if scripts:  # it comes by itself
            person.wait_for(r"(\d+) of \1 confirmed")
        else:
            eventually(lambda: re.search(r">(\d+) of \1 confirmed", server.get(person.place)))
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


MAY_ACT = "document.querySelector('#chosen button[value=plan]:enabled') !== null"
CHOSEN_IDS = "document.querySelectorAll('#chosen [name=id]').length"


def type_in(browser: Page, name: str, text: str) -> None:
    browser.run(
        f"(field => {{ field.value = {json.dumps(text)};"
        " field.dispatchEvent(new Event('input', {bubbles: true})); })"
        f"(document.querySelector('[data-live-search] [name={name}]'))"
    )


def test_a_search_follows_what_is_typed_and_shows_what_it_has_meanwhile(
    person: Person, browser: Page
) -> None:
    person.open("/letters")
    browser.run("document.querySelector('input[name=text]').focus()")
    browser.call("Input.insertText", text="pwned")
    person.until("document.querySelectorAll('#found tbody tr').length === 1")
    assert "text=pwned" in browser.run("location.search")
    person.open("/letters")
    browser.hold("*text=m17")
    type_in(browser, "text", "m17")
    told = "document.querySelector('#found [role=status]').textContent"
    eventually(lambda: "goes on: these are among the newest" in browser.run(told))
    assert browser.run(CHOSEN_IDS) == 1
    assert not browser.run(MAY_ACT)
    eventually(lambda: browser.run("1") == 1 and browser.held)
    browser.release()
    eventually(lambda: browser.run(MAY_ACT))
    assert browser.run(told) == "1 letter chosen."


def test_a_slow_answer_to_what_was_typed_before_never_replaces_that_to_what_stands_there(
    person: Person, browser: Page
) -> None:
    person.open("/letters")
    browser.hold("*text=m-1")
    type_in(browser, "text", "m-1")
    eventually(lambda: browser.run("1") == 1 and len(browser.held) == 1)
    was_off = not browser.run(MAY_ACT)
    type_in(browser, "text", "m-17")
    chosen = "document.querySelector('#chosen [name=text]')?.value"
    eventually(lambda: browser.run(chosen) == "m-17")
    browser.release()
    time.sleep(1.5)
    assert (browser.run(chosen), browser.run("location.search")) == ("m-17", "?text=m-17")
    eventually(lambda: browser.run(CHOSEN_IDS) == 1)
    assert was_off
    eventually(lambda: browser.run(MAY_ACT))


def test_a_bad_condition_is_said_beside_its_field_and_is_not_in_the_address(
    person: Person, browser: Page
) -> None:
    person.open("/letters?text=m-17")
    type_in(browser, "where", "nothing = '")
    said = "document.querySelector('[name=where][aria-invalid]')?.closest('label').nextElementSibling"
    eventually(lambda: "the condition is too deep, or no SQL" in (browser.run(f"{said}?.textContent") or ""))
    assert browser.run("location.search") == "?text=m-17"
    assert not browser.run(MAY_ACT)
    type_in(browser, "where", "")
    eventually(lambda: browser.run(MAY_ACT))
    assert browser.run("document.querySelector('[aria-invalid], .filters .refusal')") is None
    browser.problems.clear()  # the browser logs an answer of 400
