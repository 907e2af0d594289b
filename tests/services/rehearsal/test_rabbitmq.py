"""On a real RabbitMQ: what a consumer has fixed is what a rehearsal says, and nothing of it stays."""

import threading
from pathlib import Path

import pytest
from support.brokers.rabbitmq.fixtures import Rabbit, on_private_nodes, on_rabbitmq_4
from support.rehearsing import FAILURES, OF_EACH, counts, fixed, on_rabbitmq, rehearse, told_of, waiting_for
from support.waiting import eventually

from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.core.errors import AccessDenied
from dlq.operations.workspace import Notes, Workspace

pytestmark = pytest.mark.rabbitmq
COPIES = OF_EACH * len(FAILURES)


@pytest.fixture
def workspace(rabbit: Rabbit, tmp_path: Path) -> Workspace:
    return on_rabbitmq(rabbit, tmp_path, rabbit.broker())


class Consumer:
    """Rejects `broken` failures, acknowledges others; where it keeps `held` ones, it stops after the last."""

    def __init__(self, rabbit: Rabbit, broken: set[str], held: str = "") -> None:
        self.rabbit, self.broken, self.held = rabbit, broken, held
        self.keys: set[str] = set()

    def __call__(self, place: str, over: threading.Event) -> None:
        channel, taken = self.rabbit.connect(), 0
        eventually(lambda: over.is_set() or self.is_there(place))
        for method, _, body in channel.consume(place, inactivity_timeout=0.1):
            taken += method is not None
            if method is not None and body.decode() != self.held:
                self.keys.add(method.routing_key)
                if body.decode() in self.broken:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                else:
                    channel.basic_ack(method.delivery_tag)
            if over.is_set() or (self.held and taken == COPIES):
                break
        channel.connection.close()

    def is_there(self, place: str) -> bool:
        connector = RabbitConnector(self.rabbit.broker())
        return not connector.missing_targets([connector.private(place).target])


@on_private_nodes
def test_precision_and_recall_are_one(rabbit: Rabbit, workspace: Workspace) -> None:
    production = rabbit.queue()
    rabbit.publish(production, [b"waits"])
    consumer = Consumer(rabbit, {"stock", "login"})
    done = rehearse(workspace, f"queue:{production}", consumer)
    assert fixed(done.document) == {*FAILURES} - consumer.broken
    assert counts(done.document, "stock") == (OF_EACH, 0, OF_EACH, 0)
    assert counts(done.document, "tax") == (OF_EACH, OF_EACH, 0, 0)
    assert told_of(done.document, consumer.broken) == {"rejected by the consumer (poison_ack)"}
    assert consumer.keys == {"order.created"}
    assert done.document["target"] == {"name": f"queue:{production}", "before": 1, "after": 1}
    assert done.document["removed"]
    places = [done.document["place"], done.document["dead_place"]]
    eventually(lambda: not {*places} & {one["name"] for one in rabbit.listed("queues")})


@on_rabbitmq_4
def test_what_a_consumer_holds_is_told_apart_once_it_has_stopped(
    rabbit: Rabbit, workspace: Workspace
) -> None:
    has_stopped = lambda stage: stage.count_left(COPIES) == rabbit.depth(stage.private.target.name) == OF_EACH  # noqa: E731
    with waiting_for(has_stopped):
        consumer = Consumer(rabbit, {"stock"}, held="tax")
        done = rehearse(workspace, f"queue:{rabbit.queue()}", consumer, seconds=0.0)
    assert fixed(done.document) == {*FAILURES} - {"stock", "tax"}
    assert counts(done.document, "tax") == (OF_EACH, 0, 0, OF_EACH)
    assert (done.document["untold"], done.document["removed"]) == (0, True)


@on_rabbitmq_4
def test_without_management_a_consumer_that_stopped_shows_what_it_acknowledged(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    workspace = on_rabbitmq(rabbit, tmp_path, rabbit.broker(management_url=None))
    done = rehearse(workspace, f"queue:{rabbit.queue()}", Consumer(rabbit, {"stock"}, held="nothing"))
    assert (fixed(done.document), done.document["untold"]) == ({*FAILURES} - {"stock"}, 0)


@on_rabbitmq_4
def test_a_private_queue_that_is_deleted_has_consumed_nothing(rabbit: Rabbit, tmp_path: Path) -> None:
    def delete(place: str, _over: threading.Event) -> None:
        eventually(lambda: place in {one["name"] for one in rabbit.listed("queues")})
        eventually(lambda: rabbit.depth(place) == COPIES)
        rabbit.channel.queue_delete(place)

    workspace = on_rabbitmq(rabbit, tmp_path, rabbit.broker(management_url=None))
    with waiting_for(lambda stage: not stage.is_whole()):
        done = rehearse(workspace, f"queue:{rabbit.queue()}", delete, seconds=0.0)
    assert (fixed(done.document), done.document["untold"]) == (set(), COPIES)


@on_rabbitmq_4
def test_a_right_that_is_missing_is_named_in_one_line(rabbit: Rabbit, tmp_path: Path) -> None:
    workspace = on_rabbitmq(rabbit, tmp_path, rabbit.by_user("reader", rights="^dlq(-test|.replay).* .* .*"))
    with pytest.raises(AccessDenied, match=r"grant configure, write and read on dlq\.\*"):
        rehearse(workspace, f"queue:{rabbit.queue()}", lambda _place, _over: None)
    assert isinstance(workspace.listener, Notes)
    assert workspace.listener.problems == []
