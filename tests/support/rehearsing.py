"""What rehearsal tests share: failures with names, and which of them a rehearsal says were fixed."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit
from support.waiting import PATIENCE, eventually

from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.configuration import parse
from dlq.operations.brokers.pulling import PullWanted, pull_sources
from dlq.operations.replays.plans import PlanWanted, make_plan
from dlq.operations.replays.rehearsing import Rehearsed, rehearse_plan
from dlq.operations.replays.rehearsing import Wanted as Sample
from dlq.operations.workspace import Notes, Workspace, open_workspace
from dlq.replay.plans.wanted import Wanted
from dlq.replay.runs import rehearsal

FAILURES = ("gateway", "stock", "tax", "address", "login")
"""Words, as numbers in a text are no part of a failure."""
OF_EACH = 4


def spring_headers(failure: str, queue: str) -> dict[str, str]:
    """What Spring leaves on a letter that it parks."""
    text = f"the {failure} is closed"
    return {"x-exception-message": text, "x-original-exchange": "shop", "x-original-routingKey": queue}


def _workspace(folder: Path, kind: str, broker: Mapping[str, str | None], **source: str) -> Workspace:
    """A workspace over a broker with one source; what a broker has not is left out."""
    told = {"kind": kind, **{name: text for name, text in broker.items() if text}}
    sources = {"orders": {"broker": "shop", **source}}
    archive = str(folder / "archive")
    return open_workspace(parse({"archive": archive, "brokers": {"shop": told}, "sources": sources}), Notes())


def on_rabbitmq(rabbit: Rabbit, folder: Path, broker: RabbitBroker) -> Workspace:
    """The failures lie in a queue, and who sits at the workspace comes by these settings."""
    dead, names = rabbit.queue(), ("url", "management_url")
    for failure in FAILURES:
        rabbit.publish(dead, [failure.encode()] * OF_EACH, headers=spring_headers(failure, "order.created"))
    told = {name: getattr(broker, name) for name in names}
    return _workspace(folder, "rabbitmq", {**told, "password_env": PASSWORD_VARIABLE}, queue=dead)


def on_activemq(stomp: Place, folder: Path) -> Workspace:
    """The failures lie in a queue of Classic or Artemis."""
    for failure in FAILURES:
        stomp.send(*[failure.encode()] * OF_EACH, shelf=failure, **spring_headers(failure, "orders"))
    told = {name: getattr(stomp.settings, name) for name in ("url", "jolokia_url", "password_env")}
    return _workspace(folder, "activemq", told, queue=stomp.queue, mode="drain")


def on_kafka(kafka: KafkaPlace, folder: Path) -> Workspace:
    """The failures lie in a dead-letter topic, as Spring leaves them."""
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.create_topic(kafka.dead)
    told = [("kafka_dlt-original-topic", kafka.topic.encode())]
    for failure in FAILURES:
        why = ("kafka_dlt-exception-message", f"the {failure} is closed".encode())
        kafka.driver.send_all(
            kafka.dead, [(failure.encode(), b"k%d" % n, [*told, why]) for n in range(OF_EACH)]
        )
    return _workspace(folder, "kafka", {"url": kafka.node.url}, topic=kafka.dead)


def fixed(document: Mapping[str, Any]) -> set[str]:
    """The failures that passed entirely, by the word that names each."""
    return {name for name, one in by_name(document).items() if one["sent"] == one["passed"] > 0}


def by_name(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The failures of a rehearsal, by these words."""
    return {next(name for name in FAILURES if name in one["what"]): one for one in document["failures"]}


def counts(document: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Of a failure: sent, passed, died, hung."""
    return tuple(by_name(document)[name][key] for key in ("sent", "passed", "died", "hung"))


def told_of(document: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """Causes that copies of these failures died of."""
    return {death["cause"] for name in names for death in by_name(document)[name]["died_of"]}


@contextmanager
def waiting_for(done: Callable[[rehearsal.Stage], object]) -> Iterator[None]:
    """The seconds that a rehearsal gives its consumer begin when this is true."""
    wait = rehearsal.wait
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            rehearsal, "wait", lambda stage, *how: eventually(lambda: done(stage)) and wait(stage, *how)
        )
        yield


def rehearse(
    workspace: Workspace, to: str, consume: Callable[[str, threading.Event], None], seconds: float = PATIENCE
) -> Rehearsed:
    """Capture what the workspace's sources have, plan all of it, and rehearse that while `consume` reads the
    private place (its name) until it is over."""
    pull_sources(workspace, PullWanted())
    plan = make_plan(workspace, PlanWanted(how=Wanted(any_advice=True, to=to))).header.plan
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        consumer = pool.submit(consume, f"dlq.rehearsal.{plan}", over)
        try:
            done = rehearse_plan(workspace, plan, Sample(seconds=seconds))
        finally:
            over.set()
        consumer.result()
    return done
