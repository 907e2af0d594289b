"""The contract of what means harm over all drivers: as they connect, read and send."""

import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.analyzers.letters import record
from support.brokers import hostile
from support.brokers.hostile import amqp, drain, openwire, remoting, remoting_frame, stomp
from support.brokers.hostile_amqp10 import amqp10, session
from support.hostile_contract import Behaviour, Harm, HostileContract, Meeting

from dlq.connectors import open_connector
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.send import StompSender
from dlq.connectors.amqp10.codec import frames
from dlq.connectors.base import Outgoing, SendRequest, Target
from dlq.connectors.kafka.link.connection import Access, Link
from dlq.connectors.rabbitmq.amqp091.codec.frames import HEARTBEAT
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.core.settings import Source
from dlq.core.values.units import seconds

Named = Callable[[str, str], Any]
"""A broker at host:port with a time-out."""


def named(broker: Callable[..., Any], kind: str, url: str, **more: str) -> Named:
    return lambda address, timeout: broker("b", kind, url.format(address), timeout=timeout, **more)


RABBITMQ = named(RabbitBroker, "rabbitmq", "amqp://u@{}", password_env="HOSTILE")
STOMP = named(ActiveMQBroker, "activemq", "stomp://{}")
OPENWIRE = named(ActiveMQBroker, "activemq", "tcp://{}")
ROCKETMQ = named(RocketBroker, "rocketmq", "rocketmq://{}")


def reading(named: Named, **place: str) -> Callable[..., object]:
    return lambda address, timeout: drain(named(address, timeout), **place)


def looking(named: Named, **place: str) -> Callable[..., object]:
    return lambda address, timeout: open_connector(named(address, timeout)).inspect(Source("s", "b", **place))


def sending(named: Named, kind: str, target: Target) -> Callable[..., object]:
    def send(address: str, timeout: str) -> None:
        letter = record(broker_kind=kind, body=b"x")
        publisher = open_connector(named(address, timeout)).publisher(SendRequest("p"))
        for _ in publisher.publish(iter([Outgoing(0, letter, target, {"dlq_replay_id": "k"})])):
            pass

    return send


def send_by_stomp(address: str, timeout: str) -> None:
    sender = StompSender(STOMP(address, timeout))
    while True:
        sender.request("SEND", {"destination": "/queue/q"}, b"x")


def read_amqp10(address: str, timeout: str) -> None:
    reader = session(address, seconds(timeout))
    link = reader.attach(frames.RECEIVER, "q")
    reader.ask(link, 2)
    reader.wait_until(lambda: link.is_answered)


def send_amqp10(address: str, timeout: str) -> None:
    sender = session(address, seconds(timeout))
    sender.send(sender.attach(frames.SENDER, "q"), b"x")
    sender.wait_until(lambda: bool(sender.outcomes()))


def ask_kafka(address: str, timeout: str) -> None:
    host, port = address.split(":")
    Link(host, int(port), Access(seconds(timeout))).ask(1, 4, b"")


def when_asked(harm: Harm) -> Behaviour:
    """Of whatever protocol: it says nothing before."""

    def behave(peer: socket.socket) -> None:
        peer.recv(2**16)
        harm(peer)

    return behave


BY_AMQP = {"endless": struct.pack(">BHI", 3, 1, 2**32 - 1)}
WAITING = {**BY_AMQP, "nothing": HEARTBEAT, "begun": struct.pack(">BHI", 1, 0, 2**16)}
LETTER = b"MESSAGE\nsubscription:TOKEN\nmessage-id:1\ndestination:/queue/q\ncontent-length:65536\n\n"
BY_OPENWIRE = {"endless": b"\x7f\xff\xff\xff", "unasked": hostile.openwire_dispatch(b"x" * 2**16)}
BY_AMQP10 = {"endless": b"\xff\xff\xff\xff", "unasked": frames.transfer(0, 0, b"x" * 2**15, False, True)}
MIB = struct.pack(">i", 2**20)
BY_REMOTING = {"endless": b"\x7f\xff\xff\xff", "nothing": remoting_frame(2**30, {}, b""), "begun": MIB}
QUEUE, TOPIC = Target("queue", "q"), Target("topic", "t")


def when(broker: Callable[..., Behaviour], moment: Any) -> Callable[[Harm], Behaviour]:
    return lambda harm: broker(harm, moment)


def rocket(*codes: int) -> Callable[[Harm], Behaviour]:
    """Harm in the place of an answer to these; the broker that it names is the server itself."""

    def at(harm: Harm) -> Behaviour:
        answers = dict.fromkeys(codes, harm)
        return lambda peer: remoting(answers, ["{}:{}".format(*peer.getsockname())])(peer)

    return at


MEETINGS: Mapping[str, Meeting] = {
    "rabbitmq greets": Meeting(when(amqp, "Start"), reading(RABBITMQ, queue="q"), **WAITING),
    "rabbitmq answers": Meeting(when(amqp, "Queue.Declare"), looking(RABBITMQ, queue="q"), **WAITING),
    "rabbitmq gives": Meeting(
        when(amqp, "Basic.Consume"), reading(RABBITMQ, queue="q"), waits=False, **BY_AMQP
    ),
    "rabbitmq takes": Meeting(
        when(amqp, "Basic.Publish"), sending(RABBITMQ, "rabbitmq", QUEUE), waits=False, **BY_AMQP
    ),
    "activemq greets by stomp": Meeting(
        when(stomp, "CONNECT"), reading(STOMP, queue="q"), nothing=b"\n",
        endless=b"ERROR\nmessage:x\n\ny", begun=b"CONNECTED\nversion:",
    ),
    "activemq takes by stomp": Meeting(
        when(stomp, "SEND"), send_by_stomp, nothing=b"\n", unasked=LETTER + b"x" * 2**16 + b"\0\n"
    ),
    "activemq greets by openwire": Meeting(
        when(openwire, hostile.OPENWIRE_CONNECT), reading(OPENWIRE, queue="q"),
        nothing=hostile.openwire_command(10, b""), begun=MIB, **BY_OPENWIRE,
    ),
    "activemq gives by openwire": Meeting(
        when(openwire, hostile.OPENWIRE_CONSUME), reading(OPENWIRE, queue="q"), endless=b"\x7f\xff\xff\xff"
    ),
    "amqp 1.0 greets": Meeting(when(amqp10, frames.OPEN), read_amqp10, **BY_AMQP10),
    "amqp 1.0 gives": Meeting(
        when(amqp10, frames.FLOW), read_amqp10, nothing=frames.HEARTBEAT, begun=struct.pack(">I", 60_000),
        **BY_AMQP10,
    ),
    "amqp 1.0 takes": Meeting(
        when(amqp10, frames.TRANSFER), send_amqp10, nothing=frames.HEARTBEAT, **BY_AMQP10
    ),
    "rocketmq names": Meeting(rocket(106), reading(ROCKETMQ, group="g"), **BY_REMOTING),
    "rocketmq gives": Meeting(rocket(11), reading(ROCKETMQ, group="g"), **BY_REMOTING),
    "rocketmq takes": Meeting(rocket(310, 320), sending(ROCKETMQ, "rocketmq", TOPIC), **BY_REMOTING),
    "kafka answers": Meeting(when_asked, ask_kafka, begun=MIB, endless=b"\x7f\xff\xff\xff"),
}  # fmt: skip


class TestDrivers(HostileContract):
    @pytest.fixture(params=MEETINGS)
    def meeting(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Meeting:
        monkeypatch.setenv("HOSTILE", "s3cret")
        return MEETINGS[request.param]
