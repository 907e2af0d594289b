"""A RabbitMQ that never stops speaking, nor gives the letter that it began, and whose exchanges never end."""

import time
from collections.abc import Iterator, Mapping
from itertools import count, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from support.brokers.hostile import amqp_delivery, amqp_frame
from support.waiting import SOON

from dlq.connectors.base import ReadRequest, Target
from dlq.connectors.rabbitmq.amqp091.codec.frames import HEARTBEAT, FrameError, FrameReader
from dlq.connectors.rabbitmq.amqp091.read import RabbitReading
from dlq.connectors.rabbitmq.look import receivers
from dlq.connectors.rabbitmq.look.discovery import places
from dlq.connectors.rabbitmq.look.management import Management
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.runtime import patience
from dlq.core.settings import Source

REQUEST = ReadRequest(Source("s", "b", queue="q"), "drain", "p")


@pytest.mark.parametrize("pieces", [repeat(0), count()], ids=["says what is no letter", "drips one"])
def test_who_never_ends_a_letter_is_left(pieces: Iterator[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "REPLY", 0.05)
    monkeypatch.setattr(patience, "ENDLESS", 0.1)

    class Link(SimpleNamespace):
        server_version, dead, untaken = "4.1.0", False, 0
        unfinished_bytes = property(lambda _: next(pieces))

        def receive(self, _seconds: float) -> bool:
            time.sleep(0.01)
            return True

    nothing = lambda *_: ()  # noqa: E731
    link: Any = Link(call=nothing, send=nothing, take_deliveries=nothing)
    reading = RabbitReading(link, REQUEST, 5, {}, ())
    began = time.monotonic()
    for _ in reading.batches():
        assert time.monotonic() - began < SOON, "for ever"
    assert not reading.complete


def test_an_exchange_that_leads_to_another_for_ever_tells_no_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    names = count()

    class Endless(Management):
        def get(self, *_path: str) -> Mapping[str, Any]:
            return {"type": "fanout"}

        def get_bindings_of(self, _exchange: str) -> list[Mapping[str, Any]]:
            return [{"destination_type": "exchange", "destination": str(next(names))}]

    monkeypatch.setattr(receivers, "Management", Endless)
    monkeypatch.setattr(patience, "ENDLESS", 0.1)
    broker = RabbitBroker("b", "rabbitmq", "amqp://h", management_url="http://h")
    assert receivers.consumers_of(broker, [Target("exchange", "orders")]) == {}


def test_exchanges_in_a_long_row_are_looked_through_once() -> None:
    most, to_another = 20_000, {"destination_type": "exchange"}
    row = [{"source": f"e{n}", "destination": f"e{n + 1}", **to_another} for n in range(most)]
    row.append({"source": f"e{most}", "destination": "strays", "destination_type": "queue"})
    began = time.process_time()
    [found] = places([{"name": "strays"}], row, {f"e{n}": "shop" for n in range(most)})
    assert (found.name, found.because) == ("strays", "what shop cannot route goes there")
    assert time.process_time() - began < 5


def test_only_a_content_header_may_be_longer_than_a_frame() -> None:
    reader, block = FrameReader(), b"\0\0" + bytes(200_000)
    stream = amqp_delivery(b"body", block=block) + HEARTBEAT
    for at in range(0, len(stream), 1000):
        reader.feed(stream[at : at + 1000])
    [found] = reader.take(2)
    assert (found.block, found.body) == (block, b"body")
    for kind in (1, 3):
        with pytest.raises(FrameError, match="more than was agreed on"):
            FrameReader().feed(amqp_frame(kind, block))
