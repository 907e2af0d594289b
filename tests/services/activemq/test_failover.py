"""Two brokers on one store lose each other: the next run, or this one, ends with each letter there once."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.brokers.activemq.broker import ActiveMq
from support.brokers.activemq.fixtures import Place
from support.faults import Archive, Mends, through
from support.waiting import eventually

from dlq.capture.pull import PullResult
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.replay.runs.apply import Run

pytestmark = pytest.mark.activemq
NUMBER = 2500
_numbers = count(1)


class Pair:
    """A broker that serves, and one that waits for its store."""

    def __init__(self, version: str) -> None:
        first = ActiveMq(version)
        self.brokers = [first, ActiveMq(version, data=first.data)]

    def __enter__(self) -> "Pair":
        first, second = self.brokers
        first.start()
        second.begin()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in reversed(self.brokers):
            broker.__exit__()

    @property
    def serving(self) -> ActiveMq:
        """The broker that has the store."""
        eventually(lambda: any(broker.ready() for broker in self.brokers))
        return next(broker for broker in self.brokers if broker.ready())

    @property
    def waiting(self) -> ActiveMq:
        """The other."""
        serving = self.serving
        return next(broker for broker in self.brokers if broker is not serving)

    def url(self, scheme: str) -> str:
        """Both addresses."""
        ports = [broker.stomp if scheme == "stomp" else broker.openwire for broker in self.brokers]
        return f"{scheme}://{','.join(f'127.0.0.1:{port}' for port in ports)}"


@pytest.fixture(scope="module", params=["5.18.6"], ids=["a pair"])
def activemq_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Brokers that tests may kill."""
    with Pair(request.param) as pair:
        yield pair


def outlived(
    pair: Pair, scheme: str, folder: Path, breaks: Callable[[], Any], mends: Mends
) -> tuple[PullResult, Run]:
    """New letters are pulled and old ones go back, both at once, while the pair fails; returns what became of
    that. Afterwards the next runs end with each letter archived once, and back once."""
    name = f"{scheme}.{next(_numbers)}"
    broker = {"kind": "activemq", "url": pair.url(scheme)}
    archive = Archive(folder, broker, {age: {"queue": f"{age}.{name}"} for age in ("old", "new")})
    settings = archive.settings.brokers["b"]
    assert isinstance(settings, ActiveMQBroker)
    stomp = ActiveMQBroker("b", "activemq", url=pair.url("stomp"))
    place = Place(pair.serving, stomp, ActiveMQConnector(stomp), name)
    bodies = {age: [f"{age} {n}".encode() for n in range(NUMBER)] for age in ("old", "new")}
    for age, letters in bodies.items():
        place.send(*letters, queue=f"{age}.{name}")
    archive.pull_to_the_end("old", NUMBER)
    plan = archive.plan(to=f"queue:work.{name}")
    became = through(archive, plan, NUMBER, NUMBER // 2, breaks, mends)
    assert archive.bodies("new") == Counter(bodies["new"])
    eventually(lambda: archive.reconcile(plan).unknown == 0)  # a marker proves each transaction
    archive.apply(plan)
    assert archive.states(plan) == {"confirmed": NUMBER}
    arrived = Counter(record.headers["dlq_replay_id"] for record in place.drain(f"work.{name}"))
    assert arrived == archive.replay_ids(plan)
    return became


def test_the_broker_that_serves_is_killed_and_the_other_takes_over(
    activemq_pair: Pair, tmp_path: Path
) -> None:
    serving = activemq_pair.serving
    pulled, run = outlived(activemq_pair, "stomp", tmp_path, serving.kill, lambda _over: serving.begin())
    assert (pulled.error, pulled.captured) == (None, NUMBER), "the pull waits for the other, and goes on"
    assert run.lost, "the replay ends, and the next one sends the rest"


def test_both_are_restarted_one_after_the_other(activemq_pair: Pair, tmp_path: Path) -> None:
    serving, waiting = activemq_pair.serving, activemq_pair.waiting

    def restart_the_other(_over: Event) -> None:
        serving.begin()
        eventually(waiting.ready)
        waiting.stop()
        waiting.begin()

    pulled, run = outlived(activemq_pair, "tcp", tmp_path, serving.stop, restart_the_other)
    assert pulled.captured > 0
    assert run.lost
