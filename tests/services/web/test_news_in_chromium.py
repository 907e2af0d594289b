"""A replay's page that stays open: it hears of what begins later, and says when it hears nothing."""

from pathlib import Path

from support.servers.person import Person
from support.serving import browsing, run, serving, write_archive
from support.waiting import eventually

LETTERS = 900
"""At one a second it still goes on when all has been seen."""


def test_an_open_page_hears_of_an_apply_that_begins_later_and_of_a_server_that_is_gone(
    tmp_path: Path,
) -> None:
    write_archive(tmp_path, LETTERS)
    with serving(tmp_path) as server, browsing(server.address) as page:
        person, chosen = Person(page, server.port), {"source": "orders", "to": "queue:orders", "rate": "1"}
        made = server.enter().post("/plans", {**chosen, "any_advice": "1"}, "/plans/new?source=orders")
        plan = made.removeprefix("/plans/")
        assert f"0 of {LETTERS} confirmed; {LETTERS} not sent" in person.open(f"/replays/{plan}")
        server.apply_plan(plan)
        person.wait_for(rf"[1-9]\d* of {LETTERS} confirmed; going on")
        person.until("!document.querySelector('form[action$=stop] button').disabled")
        server.kill()
        person.wait_for("No news since .* UTC: the server does not answer")
        assert "going on" not in person.text
        confirmed = lambda: int(run(tmp_path, "replay", "status", plan)["states"]["confirmed"])  # noqa: E731
        before = confirmed()
        eventually(lambda: confirmed() > before)
        eventually(lambda: not run(tmp_path, "replay", "stop", plan)["stopping"])
