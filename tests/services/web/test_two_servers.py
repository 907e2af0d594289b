"""Two servers, each on a host of its own, over one archive (S3) and one ledger (PostgreSQL): one truth, and
nothing twice."""

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.servers.ledgers import Postgres
from support.serving import EVERYTHING, Server, configure, import_letters, serving
from support.waiting import eventually

from dlq.connectors.memory import broker_at

LETTERS = 40


@pytest.fixture(scope="module")
def ledger() -> Iterator[str]:
    server = Postgres()
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def servers(s3_location: str, ledger: str, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Both have the letters."""
    hosts = [tmp_path / "first", tmp_path / "second"]
    for host in hosts:
        host.mkdir()
        configure(host, EVERYTHING, s3_location, f'[ledger]\nurl = "{ledger}"', tmp_path / "broker.db")
    letter = {"broker_kind": "rabbitmq", "queue": "orders.dlq"}
    import_letters(hosts[0], [{**letter, "body_text": f"order {n}"} for n in range(LETTERS)])
    with serving(hosts[0]) as first, serving(hosts[1]) as second:
        yield first.enter(), second.enter()


def test_what_one_says_and_plans_the_other_sees_and_both_apply_it_once(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    first, second = servers
    failure = re.findall(r"/failures/[0-9a-f]{16,32}", first.get("/failures"))[0]
    first.post(f"{failure}/note", {"text": "the gateway is down"}, failure)
    assert "the gateway is down" in first.get(failure), "at once by who said it"
    eventually(lambda: "the gateway is down" in second.get(failure))
    fields = {"source": "orders", "to": "queue:orders", "any_advice": "1", "rate": "10"}
    plan = first.post("/plans", fields, "/plans/new?source=orders").removeprefix("/plans/")
    eventually(lambda: plan in second.get("/plans"))
    with ThreadPoolExecutor() as both:
        answers = list(both.map(lambda server: server.press_apply(plan), servers))
    assert answers[0][0].status == 303 or answers[1][0].status == 303
    late = re.compile("nothing of it is left to send|is locked by pid")  # who comes second may be told so
    for answer, text in answers:
        assert answer.status == 303 or late.search(text), text
    done = f"{LETTERS} of {LETTERS} confirmed"
    for server in servers:
        eventually(lambda server=server: done in server.get(f"/replays/{plan}"))
    came = Counter(one["body_text"] for one in broker_at(f"memory://{tmp_path}/broker.db").letters("orders"))
    assert (len(came), set(came.values())) == (LETTERS, {1})
    for server in servers:
        eventually(lambda server=server: f'data-label="replayed">{LETTERS}<' in server.get("/books"))
