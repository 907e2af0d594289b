"""The commands that `dlq coverage` prints are run as they are printed, by the brokers' own programs: what was
lost is kept then. Artemis has lines of its broker.xml for most, which are written there; Classic has no
command, and its elements are tried by the prediction alone (test_strategies)."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import ResourceType
from support.brokers.activemq.broker import Artemis
from support.brokers.activemq.fixtures import Place, on_artemis
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.kafka.install import install_tools
from support.brokers.rabbitmq.fixtures import Rabbit
from support.brokers.rocketmq.driver import AdminCode
from support.brokers.rocketmq.fixtures import Rocket
from support.waiting import PATIENCE, eventually, settled

from dlq.connectors.base import Fate
from dlq.connectors.rabbitmq.look import definitions
from dlq.connectors.rabbitmq.look.coverage import deaths

Coverage = Callable[[], Sequence[Fate]]


def follow(coverage: Coverage, run: Callable[[str], object], *names: str) -> None:
    """Take each step that is said of these places until nothing is lost: a policy names a queue, the next
    step makes it."""

    def lost() -> dict[tuple[str, str], str]:
        rows = (fate for fate in coverage() if fate.name in names and fate.verdict == "lost")
        return {(fate.name, fate.death): fate.fix for fate in rows}

    def ahead() -> list[set[str]]:
        """What is left to do; it takes a while until a broker shows what was done, and not all at once."""
        now = settled(lost)
        steps = {fix for fix in now.values() if fix} - taken
        return [steps] if steps or not now else []

    eventually(lambda: {name for name, _ in lost()} == {*names})
    first, taken = lost(), set[str]()
    while steps := eventually(ahead)[0]:
        for fix in sorted(steps):
            run(fix)
        taken |= steps

    def left() -> list[Fate]:
        return [fate for fate in coverage() if (fate.name, fate.death) in first and fate.verdict != "kept"]

    eventually(lambda: not left())


def execute(command: Sequence[str], **more: object) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, **more)  # type: ignore[call-overload]
    is_done = done.returncode == 0 and "Failed" not in done.stdout  # Artemis ends with 0 all the same
    assert is_done, f"{shlex.join(command)}: {done.stdout[:500]}{done.stderr[:1000]}"


@pytest.mark.rabbitmq
def test_rabbitmqctl_and_rabbitmqadmin(rabbit: Rabbit) -> None:
    """The `rabbitmqadmin` of 4 is no program of Debian's: there, all that a command names is there."""
    policies = {
        "orders": {"dead-letter-exchange": "gone"},
        "small": {"max-length": 1, "overflow": "reject-publish"},
        "brief": {"message-ttl": 60_000, "max-length": 9},
        "guest": {"expires": 60_000, "max-length": 9},
    }
    for name, definition in policies.items():
        rabbit.set_policy(f"^{name}$", definition)
    ways = {"it's billing": {}, "full": {"": "small"}, "waits": {"": "brief"}, "bills": {"dlx": None}}
    for name in (*policies, *ways):
        (to, key), *_ = [*ways.get(name, {}).items(), (None, None)]
        arguments = {"x-dead-letter-exchange": to, "x-dead-letter-routing-key": key}
        table = {name: value for name, value in arguments.items() if value is not None}
        rabbit.channel.queue_declare(name, durable=True, arguments=table)
    for exchange in ("dlx", "events"):
        rabbit.channel.exchange_declare(exchange, "direct", durable=True)
    rabbit.channel.basic_publish("", "small", b"")
    names = ["it's billing", "full", "waits", "guest", "events", "orders", "bills"]
    if rabbit.version >= (4,):
        for name in ("it's billing.dlq", "guest.dlq"):
            rabbit.channel.queue_declare(name, durable=True)
        names = names[:4]

    def run(fix: str) -> None:
        program, *words = shlex.split(fix)
        node = rabbit.node
        login = ["-H", "127.0.0.1", "-P", f"{node.http_port}", "-u", "guest", "-p", "guest"]
        found = [program, *login] if program == "rabbitmqadmin" else [f"{node.bin}/{program}"]
        execute([*found, *words], env=node.environment)

    def coverage() -> list[Fate]:
        return deaths.predict(definitions.fetch(rabbit.broker()))

    follow(coverage, run, *names)


@pytest.mark.kafka
def test_kafka_configs_and_kafka_topics(kafka: KafkaPlace) -> None:
    number, tools = kafka.number, str(install_tools(kafka.node.version))
    programs = {"kafka-configs.sh": "ConfigCommand", "kafka-topics.sh": "TopicCommand"}
    closed, brief, short = (f"dlq.{kind}-{number}" for kind in ("closed", "brief", "short"))
    groups = {"none": "", "away": f"dlq.away-{number}", "shut": closed, "short": brief}
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.create_topic(closed)
    kafka.driver.create_topic(brief, retention_ms=60_000, errors_deadletterqueue_group_enable="true")
    kafka.driver.create_topic(short, retention_ms=60_000)
    kafka.driver.send(kafka.topic, b"letter", key=b"k")
    names = [f"{kind}-{number}" for kind in groups]
    for name, to in zip(names, groups.values(), strict=True):
        where = {"errors_deadletterqueue_topic_name": to} if to else {}
        kafka.driver.configure(ResourceType.GROUP, name, share_auto_offset_reset="earliest", **where)
        kafka.driver.share(name, kafka.topic, lambda _: AcknowledgeType.ACCEPT, 1)

    def run(fix: str) -> None:
        program, *words = shlex.split(fix)
        execute(kafka.node.java(f"org.apache.kafka.tools.{programs[program]}", *words, classes=tools))

    follow(kafka.connector.coverage, run, *names, short)


@pytest.mark.rocketmq
def test_mqadmin(rocket: Rocket) -> None:
    cluster, dropped, sealed = rocket.cluster, f"dropped-{rocket.number}", f"sealed-{rocket.number}"
    for group, queues in ((dropped, 0), (sealed, 1)):
        told = {"groupName": group, "retryQueueNums": queues, "consumeEnable": True}
        rocket.driver.ok(AdminCode.CREATE_GROUP, {}, json.dumps(told).encode())
    rocket.driver.create_topic(f"%DLQ%{sealed}", permission=2)

    def run(fix: str) -> None:
        program, *words = shlex.split(fix)
        assert program == "mqadmin"
        execute(cluster.java("org.apache.rocketmq.tools.command.MQAdminStartup", *words))

    follow(rocket.connector.coverage, run, dropped, sealed)
    address = cluster.addresses["broker-a"]
    run(f"mqadmin updateBrokerConfig -n {cluster.name_server} -b {address} -k fileReservedTime -v 9")
    follow(rocket.connector.coverage, run, "broker-a")


@on_artemis
@pytest.mark.activemq
def test_artemis_and_lines_of_its_broker_xml(stomp: Place) -> None:
    assert isinstance(stomp.broker, Artemis)
    instance, name = stomp.broker.folder / "instance", stomp.queue
    xml = instance / "etc" / "broker.xml"

    def write(match: str, settings: str) -> None:
        """Where there are some of that match, beside them; the broker reads it again every few seconds."""
        text, begin = xml.read_text(), f'<address-setting match="{match}">'
        if begin not in text:
            text = text.replace("<address-settings>", f"<address-settings>{begin}</address-setting>", 1)
        xml.write_text(text.replace(begin, begin + settings, 1))

    def run(fix: str) -> None:
        if line := re.fullmatch(r'<address-setting match="(.*)">(.*)</address-setting> in broker.xml', fix):
            return write(line[1], line[2])
        program, *words = shlex.split(fix)
        login = ["--user", stomp.broker.user, "--password", stomp.broker.password]
        return execute([f"{instance}/bin/{program}", *words, *login])

    names = [f"{name}.none", f"{name}.lone", f"{name}.nowhere"]
    late = f"<expiry-address>{name}.late</expiry-address>"
    write(f"{name}.#", f"<dead-letter-address></dead-letter-address>{late}")
    for place in names[:2]:
        stomp.make_queue(place)
    lone = {"expiryAddress": "ExpiryQueue", "deadLetterAddress": f"{name}.dead"}
    stomp.manage("addAddressSettings", names[1], lone)
    stomp.manage("createAddress", names[2], "ANYCAST")
    follow(stomp.connector.coverage, run, *names)
