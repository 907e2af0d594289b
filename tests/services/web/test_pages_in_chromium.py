"""The pages in a real browser: everybody can read and use them, and no letter runs anything there."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers.axe import find_violations, read_axe
from support.servers.chromium import Page, chromium
from support.serving import Server, run, serving, write_archive
from support.waiting import eventually

ATTACK = '<script>window.pwned=1</script>"\'><img src=x onerror="window.pwned=1">\u202e{{7*7}}'
VIEWS = [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")]
LISTS = (
    "/", "/failures", "/letters", "/incidents", "/plans", "/transactions", "/books", "/audit", "/plans/new",
    "/pull", "/coverage",
)  # fmt: skip
HOSTILE = {
    "broker_kind": "rabbitmq", "queue": "orders.dlq", "body_text": ATTACK, "message_id": ATTACK,
    "headers": {"x-exception-message": ATTACK, "x-exception-fqcn": ATTACK, ATTACK: ATTACK,
                "x-exception-stacktrace": f"java.lang.Boom: {ATTACK}\n\tat com.shop.A.b(A.java:1)"},
}  # fmt: skip

LONG = {
    "broker_kind": "rabbitmq", "queue": "q" * 200, "body_text": "b" * 5_000, "message_id": "m" * 200,
    "headers": {"x-exception-message": "no blank " + "w" * 900, "h" * 250: "v" * 250,
                "x-exception-stacktrace": f"java.lang.{'Very' * 60}Long: {'w' * 900}\n"
                + "".join(f"\tat com.shop.{'p' * 150}.A.b(A.java:{n})\n" for n in range(150))},
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over letters, some of them hostile, with a plan."""
    folder: Path = tmp_path_factory.mktemp("pages")
    write_archive(folder, 60)
    (folder / "hostile.jsonl").write_text(f"{json.dumps(HOSTILE)}\n{json.dumps(LONG)}")
    run(folder, "import", "hostile.jsonl", "--source", "orders")
    run(folder, "replay", "plan", "--any-advice", "--to", "queue:orders", "--reason", ATTACK)
    with serving(folder) as found:
        yield found.enter()


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Page]:
    """A browser that has opened the printed address."""
    with chromium() as page:
        page.call("Page.navigate", url=server.address)
        eventually(lambda: page.run("location.search === '' && document.title") == "Now – dlq")
        yield page


@pytest.fixture(scope="module")
def axe() -> str:
    return read_axe()


def base(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def every_page(server: Server) -> list[str]:
    """One of each kind of page."""
    letters = [_first("letters", server.get(f"/letters?text={text}")) for text in ("pwned", "mmmmmm")]
    failures = re.findall(r"/failures/[0-9a-f]{16,32}", server.get("/failures"))
    plans = re.findall(r"/plans/\d{8}T[\w-]+", server.get("/plans"))
    return [*LISTS, *letters, *dict.fromkeys(failures), plans[0], plans[0].replace("plans", "replays")]


def _first(kind: str, page: str) -> str:
    return re.findall(rf"/{kind}/[0-9a-f]{{32}}", page)[0]


def test_the_token_is_neither_in_the_address_nor_in_the_history_nor_in_reach_of_scripts(
    server: Server, browser: Page
) -> None:
    browser.open(base(server) + "/")
    assert "token" not in browser.run("location.href")
    assert browser.run("document.cookie") == ""
    assert browser.run("document.referrer") == ""
    entries = browser.call("Page.getNavigationHistory")["entries"]
    assert [entry["url"] for entry in entries if "token" in entry["url"]] == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_axe_finds_nothing_on_any_page(
    server: Server, browser: Page, axe: str, width: int, scheme: str
) -> None:
    found = {}
    for path in every_page(server):
        browser.open(base(server) + path, width, prefers_color_scheme=scheme)
        if violations := find_violations(browser, axe, "target-size"):
            found[path] = violations
    assert found == {}


@pytest.mark.parametrize("width", [1200, 390])
def test_hostile_letters_run_and_load_nothing(server: Server, browser: Page, width: int) -> None:
    browser.problems.clear()
    browser.requests.clear()
    for path in every_page(server):
        browser.open(base(server) + path, width)
        assert browser.run("window.pwned") is None
    assert browser.problems == []
    assert all(url.startswith((base(server), "data:,")) for url in browser.requests)


@pytest.mark.parametrize("path", LISTS)
def test_no_page_is_wider_than_a_phone(server: Server, browser: Page, path: str) -> None:
    browser.open(base(server) + path, 390)
    assert browser.run("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(("width", "height"), [(1400, 800), (390, 844)])
def test_the_first_letter_is_in_sight_and_so_is_what_may_be_done(
    server: Server, browser: Page, width: int, height: int
) -> None:
    browser.open(base(server) + "/letters?cause=unknown", width, height)
    bottom = "document.querySelector({!r}).getBoundingClientRect().bottom"
    bar = browser.run(bottom.format("#chosen fieldset"))
    assert browser.run(bottom.format("#found tbody tr")) < bar <= height
    assert browser.run("document.querySelector('#ticked').textContent") == "All 60"


def test_plan_is_at_most_five_tabs_from_the_first_letter(server: Server, browser: Page) -> None:
    browser.open(base(server) + "/letters")
    browser.type("j")
    assert tab_to(browser, "Plan a replay…") <= 5


def test_keys_go_from_row_to_row_and_from_page_to_page(server: Server, browser: Page) -> None:
    browser.open(base(server) + "/letters")
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
    assert browser.run("location.pathname") == "/letters"
    browser.run("document.activeElement.blur()")
    browser.type("?")
    assert browser.run("document.querySelector('dialog.keys').open")
    browser.run("document.querySelector('dialog.keys').close()")
    browser.type("gf")
    wait_for(browser, "location.pathname === '/failures' && document.readyState === 'complete'")
    browser.type("j")
    browser.press("Enter", "\r")
    wait_for(browser, "/^\\/failures\\/\\w/.test(location.pathname) && document.readyState === 'complete'")


def test_who_assigns_a_failure_stands_where_they_were_and_can_undo_it(server: Server, browser: Page) -> None:
    failure = re.findall(r"/failures/[0-9a-f]{16,32}", server.get("/failures"))[0]
    browser.open(base(server) + failure)
    browser.type("a")
    browser.run("document.querySelector('[name=owner]').focus(); document.activeElement.value = ''")
    browser.call("Input.insertText", text="o'hara")
    shown = "document.querySelector('form[action$=assign] .follows code').textContent"
    assert browser.run(shown) == f"dlq failures assign {failure[10:22]} 'o'\"'\"'hara'"
    browser.press("Enter", "\r")
    wait_for(browser, "document.querySelector('.news')?.innerText.includes(\"o'hara\")")
    assert browser.run("document.activeElement.innerText") == "Assign"
    browser.run("[...document.querySelectorAll('.news button')].find(b => b.innerText === 'Undo').click()")
    wait_for(browser, "document.querySelector('.aside')?.innerText.includes('nobody')")


def test_escape_closes_a_form_and_gives_the_focus_back(server: Server, browser: Page) -> None:
    browser.open(base(server) + re.findall(r"/failures/[0-9a-f]{16,32}", server.get("/failures"))[0])
    browser.type("a")
    browser.press("Tab")
    assert browser.run("document.activeElement.name") == "owner"
    browser.press("Escape")
    assert browser.run("[document.activeElement.innerText, document.querySelector('.opens [open]')]") == [
        "Assign",
        None,
    ]


def test_what_was_dismissed_by_hand_is_undone_into_the_same_list(server: Server, browser: Page) -> None:
    browser.open(base(server) + "/letters?source=orders&cause=unknown")
    browser.type("jx")
    browser.run("document.querySelector('.up summary').click()")
    browser.run("document.querySelector('.up [name=reason]').value = 'seen'")
    for button, said in (("[value=dismiss]", "1 dismissed."), (".news button.main", "1 open again.")):
        browser.run(f"document.querySelector('{button}').click()")
        wait_for(browser, f"document.querySelector('.news')?.innerText.includes('{said}')")
        assert browser.run("location.search") == "?source=orders&cause=unknown"


def test_a_phone_shows_in_the_bar_where_one_is(server: Server, browser: Page) -> None:
    browser.open(base(server) + "/audit", 390)
    assert browser.run("document.querySelector('.top [aria-current]').getBoundingClientRect().right") <= 390


def test_a_deep_link_survives_signing_in(server: Server, browser: Page) -> None:
    deep = "/failures?state=new"
    browser.call("Network.clearBrowserCookies")
    browser.open(base(server) + deep)
    browser.run(f"document.querySelector('[name=token]').value = {server.address.partition('token=')[2]!r}")
    browser.run("document.querySelector('form').requestSubmit()")
    wait_for(browser, "document.title === 'Failures – dlq'")
    assert browser.run("location.pathname + location.search") == deep
    browser.problems.clear()  # the browser logs an answer of 401


def test_the_theme_follows_the_system_unless_one_is_chosen(server: Server, browser: Page) -> None:
    paper = "getComputedStyle(document.querySelector('section')).backgroundColor"
    browser.open(base(server) + "/", prefers_color_scheme="light")
    light = browser.run(paper)
    browser.run("document.querySelector('[data-theme=dark]').click()")
    dark = browser.run(paper)
    browser.open(base(server) + "/failures", prefers_color_scheme="light")
    assert browser.run(paper) == dark != light
    browser.run("document.querySelector('[data-theme=\"\"]').click()")
    assert browser.run(paper) == light


def test_who_points_at_a_time_reads_it_in_their_own_zone(server: Server, browser: Page) -> None:
    browser.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    browser.open(base(server) + "/plans")
    told = browser.run(
        "(time => { time.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));"
        " return time.title; })"
        "(document.querySelector('main time'))"
    )
    browser.call("Emulation.setTimezoneOverride", timezoneId="")
    assert re.search(r"GMT\+5:30|IST", told), told


def test_the_command_below_a_form_makes_the_same_plan(server: Server, browser: Page) -> None:
    browser.open(base(server) + "/plans/new?text=m-17")
    browser.run("document.querySelector('[name=to]').value = ''; document.querySelector('[name=to]').focus()")
    browser.call("Input.insertText", text="queue:orders")
    browser.run("document.querySelector('[name=any_advice]').click()")
    told = shlex.split(browser.run("document.querySelector('.follows code').textContent"))
    assert told == ["dlq", "replay", "plan", "--text", "m-17", "--to", "queue:orders", "--any-advice"]
    assert run(server.folder, *told[1:])["targets"] == {"queue:orders": 1}


_FOCUSED = "(document.activeElement?.innerText || document.activeElement?.name || '').trim()"
"""While a page is still coming nothing has the focus."""


def tab_to(page: Page, text: str) -> int:
    """Tab until what says this has the focus; how often."""
    for times in range(1, 201):
        page.press("Tab")
        said = page.run(_FOCUSED)
        if said == text:
            return times
    raise AssertionError(f"no way by keyboard to {text!r}")


def wait_for(page: Page, expression: str) -> None:
    def holds() -> bool:
        try:
            return bool(page.run(expression))
        except AssertionError:  # the page is just being left
            return False

    eventually(holds)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_the_whole_way_by_keyboard_alone(server: Server, browser: Page, scripts: bool) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=not scripts)
    try:
        browser.open(base(server) + "/letters?text=m-" + ("1" if scripts else "2"))
        tab_to(browser, "Plan a replay…")
        browser.press("Enter", "\r")
        wait_for(browser, "location.pathname === '/plans/new'")
        tab_to(browser, "to")
        browser.call("Input.insertText", text="queue:orders")
        tab_to(browser, "any_advice")
        browser.press(" ", " ")
        tab_to(browser, "Make the plan")
        browser.press("Enter", "\r")
        wait_for(browser, "/^\\/plans\\/\\d/.test(location.pathname)")
        tab_to(browser, "ramp")
        browser.press(" ", " ")
        tab_to(browser, "Send")
        browser.press("Enter", "\r")
        wait_for(browser, "/^\\/replays\\//.test(location.pathname)")
        if scripts:  # it comes by itself
            wait_for(browser, "/(\\d+) of \\1 confirmed/.test(document.body.innerText)")
        else:
            place = str(browser.run("location.pathname"))
            eventually(lambda: re.search(r">(\d+) of \1 confirmed", server.get(place)))
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_search_follows_what_is_typed(server: Server, browser: Page) -> None:
    browser.open(base(server) + "/letters")
    before = browser.run("document.querySelectorAll('#found tbody tr').length")
    browser.run("document.querySelector('input[name=text]').focus()")
    browser.call("Input.insertText", text="pwned")
    wait_for(browser, "document.querySelectorAll('#found tbody tr').length === 1")
    assert before == 50
    assert "text=pwned" in browser.run("location.search")


def type_in(browser: Page, name: str, text: str) -> None:
    browser.run(
        f"(field => {{ field.value = {json.dumps(text)};"
        " field.dispatchEvent(new Event('input', {bubbles: true})); })"
        f"(document.querySelector('[data-live-search] [name={name}]'))"
    )


def may_act(browser: Page) -> bool:
    return bool(browser.run("document.querySelector('#chosen button[value=plan]:enabled') !== null"))


def test_a_slow_answer_to_what_was_typed_before_never_replaces_that_to_what_stands_there(
    server: Server, browser: Page
) -> None:
    browser.open(base(server) + "/letters")
    browser.hold("*text=m-1")
    type_in(browser, "text", "m-1")
    eventually(lambda: browser.run("1") == 1 and len(browser.held) == 1)
    was_off = not may_act(browser)
    type_in(browser, "text", "m-17")
    chosen = "document.querySelector('#chosen [name=text]')?.value"
    eventually(lambda: browser.run(chosen) == "m-17")
    browser.release()
    time.sleep(1.5)
    assert (browser.run(chosen), browser.run("location.search")) == ("m-17", "?text=m-17")
    assert browser.run("document.querySelectorAll('#chosen [name=id]').length") == 1
    assert was_off
    eventually(lambda: may_act(browser))


def test_a_search_shows_what_it_has_and_says_that_it_goes_on(server: Server, browser: Page) -> None:
    browser.open(base(server) + "/letters")
    browser.hold("*text=m-17")
    type_in(browser, "text", "m-17")
    told = "document.querySelector('#found [role=status]').textContent"
    eventually(lambda: "goes on: these are among the newest" in browser.run(told))
    assert browser.run("document.querySelectorAll('#chosen [name=id]').length") == 1
    assert not may_act(browser)
    eventually(lambda: browser.run("1") == 1 and browser.held)
    browser.release()
    eventually(lambda: may_act(browser))
    assert browser.run(told) == "1 letter chosen."


def test_a_bad_condition_is_said_beside_its_field_and_is_not_in_the_address(
    server: Server, browser: Page
) -> None:
    browser.open(base(server) + "/letters?text=m-17")
    type_in(browser, "where", "nothing = '")
    said = "document.querySelector('[name=where][aria-invalid]')?.closest('label').nextElementSibling"
    eventually(lambda: "the condition is too deep, or no SQL" in (browser.run(f"{said}?.textContent") or ""))
    assert browser.run("location.search") == "?text=m-17"
    assert not may_act(browser)
    type_in(browser, "where", "")
    eventually(lambda: may_act(browser))
    assert browser.run("document.querySelector('[aria-invalid], .filters .refusal')") is None
    browser.problems.clear()  # the browser logs an answer of 400
