"""What doctor says of real queues, with the management API and without."""

import pytest
from support.brokers.rabbitmq.fixtures import Rabbit, on_private_nodes, request
from support.brokers.rabbitmq.letters import goes_while_somebody_waits, to_queue
from support.waiting import eventually

from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.core.errors import AccessDenied, ConnectionLost, HarmRefused, NotFound, UsageError

_STATISTICS_ARE_OFF = "application:set_env(rabbitmq_management_agent, disable_metrics_collector"
each_way = pytest.mark.parametrize("managed", [True, False])


@on_private_nodes
@each_way
def test_arguments_are_known_with_and_without_the_management_api(rabbit: Rabbit, managed: bool) -> None:
    limits = {"x_delivery_limit": 7, "x_message_ttl": 60_000, "x_max_length": 10}
    queue = rabbit.holding([b"x"] * 9, "quorum", x_dead_letter_exchange="next", **limits)
    seen = rabbit.inspect(queue, managed)
    assert seen.version == ".".join(map(str, rabbit.version))
    assert seen.depth == seen.facts["letters ready"] == 9
    assert (seen.facts["queue type"], seen.facts["delivery limit"]) == ("quorum", 7)
    assert (seen.facts["message TTL"], seen.facts["max length"]) == ("1m", 10)
    assert seen.facts["rights"] == "read, write to the default exchange"
    assert "insist with --force" in seen.harm["copy"]
    connector = rabbit.connector() if managed else rabbit.connector(management_url=None)
    with pytest.raises(HarmRefused, match="--mode drain, or insist with --force"):
        connector.read(request(queue, "copy"))
    said = " ".join(seen.warnings)
    assert "letters older than 1m are dead-lettered again: pull in" in said
    assert "9 of at most 10" in said
    assert ("set management_url" in said) != managed


@on_private_nodes
def test_an_alarm_that_keeps_rights_from_being_tried_is_named_at_once(rabbit: Rabbit) -> None:
    queue = rabbit.holding([b"x"])
    rabbit.node.limit_memory("0.0001")
    try:
        with pytest.raises(
            ConnectionLost, match=r"an alarm of the broker's \(.*memory.*\) blocks publishers"
        ):
            eventually(lambda: rabbit.inspect(queue) and None)
    finally:
        rabbit.node.limit_memory()
    assert rabbit.inspect(queue).depth == 1


@each_way
def test_a_full_queue_that_refuses_letters_is_not_said_to_lose_its_oldest(
    rabbit: Rabbit, managed: bool
) -> None:
    queue = rabbit.holding([b"x"] * 5, x_max_length=5, x_overflow="reject-publish")
    [said] = [one for one in rabbit.inspect(queue, managed).warnings if "5 of at most 5" in one]
    assert "refuses what comes" in said
    assert "wait in it until there is room" in said
    assert "the oldest" not in said


def test_looking_takes_no_letter_and_leaves_no_trace(rabbit: Rabbit) -> None:
    queue = rabbit.dead_letters(3, "quorum")
    for managed in (True, False, True, False):
        assert rabbit.inspect(queue, managed).depth == 3
    letters = rabbit.take(queue, 3)
    assert not any(method.redelivered for method, _, _ in letters)


def test_letters_that_a_consumer_gives_back_meanwhile_are_counted(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = rabbit.dead_letters(3, "quorum")
    holder = rabbit.connect()
    assert [holder.basic_get(queue)[0] is not None for _ in range(3)] == [True] * 3
    rabbit.wait_for(queue, 0)
    goes_while_somebody_waits(holder, monkeypatch)
    assert rabbit.inspect(queue).depth == 3


@each_way
def test_that_an_empty_quorum_queue_is_empty_only_the_management_api_shows(
    rabbit: Rabbit, managed: bool
) -> None:
    """A node says 0 for one that has no leader, too, and who looks may not ask for a letter to find out."""
    source = request(rabbit.queue("quorum")).source
    connector = rabbit.connector() if managed else rabbit.connector(management_url=None)
    found, seen = connector.gauge(source), connector.inspect(source)
    assert found.depth == seen.depth == seen.facts.get("letters ready") == (0 if managed else None)
    for said in (found.note, " ".join(seen.warnings)):
        assert ("leader" in said) != managed


@on_private_nodes
def test_policies_bindings_and_alternate_exchanges_come_from_the_management_api(rabbit: Rabbit) -> None:
    rabbit.set_policy(".*", {"message-ttl": 90_000, "expires": 3_600_000})
    letters, work = rabbit.queue(), rabbit.queue("quorum", x_delivery_limit=5)
    channel = rabbit.channel
    channel.exchange_declare("unrouted", "fanout")
    channel.exchange_declare("shop", "topic", arguments={"alternate-exchange": "unrouted"})
    channel.queue_bind(letters, "unrouted", letters)
    channel.queue_bind(work, "shop", "order.*")
    retry = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=work)
    rabbit.wait_for_statistics(retry)
    rabbit.wait_for_statistics(letters)
    reading = rabbit.read(letters)
    reading.close()
    assert reading.topology["message_ttl"] == 90_000
    assert reading.topology["alternate_exchanges"] == ["unrouted"]
    assert reading.topology["delivery_limits"] == {work: 5}
    assert reading.topology["dead_letter_keys"] == {retry: work}
    assert reading.topology["routes"]["shop"] == {"order.*": [work]}
    assert reading.topology["routes"]["unrouted"] == {"#": [letters]}
    seen = rabbit.inspect(letters)
    assert (seen.facts["message TTL"], seen.facts["queue expires when unused for"]) == ("1m 30s", "1h")
    assert seen.facts["bindings"] == f"unrouted/{letters}"
    assert any("the queue itself goes" in warning for warning in seen.warnings)


def test_other_consumers_are_named_in_doctor_and_pull(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    rabbit.channel.basic_consume(queue, lambda *_: None)
    seen = rabbit.inspect(queue)
    assert seen.facts["consumers"] == 1
    assert any("1 other consumer" in warning for warning in seen.warnings)
    reading = rabbit.read(queue)
    reading.close()
    assert any("1 other consumer" in note for note in reading.notes)


def test_a_management_api_that_does_not_answer_is_said_and_does_not_stop(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    broker = rabbit.broker(management_url="http://127.0.0.1:1")
    seen = RabbitConnector(broker).inspect(request(queue).source)
    assert (seen.depth, seen.facts["queue type"]) == (0, "classic")
    assert any("does not answer" in warning for warning in seen.warnings)


@on_private_nodes
def test_a_user_whom_the_management_api_refuses_hears_which_tag_is_missing(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    broker = rabbit.by_user("untagged")
    seen = RabbitConnector(broker).inspect(request(queue).source)
    assert any("HTTP 401" in warning and "tag management" in warning for warning in seen.warnings)
    assert "tag management" in RabbitConnector(broker).gauge(request(queue).source).note


@on_private_nodes
def test_a_node_without_statistics_tells_all_but_who_holds_a_queue(rabbit: Rabbit) -> None:
    """It refuses to list consumers. Policies without statistics are shown since 4."""
    rabbit.set_policy("^orders$", {"max-length": 1})
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"}
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    for queue, arguments in {"orders": dead, "orders.dlq": full}.items():
        rabbit.channel.queue_declare(queue, durable=True, arguments=arguments)
        rabbit.publish(queue, [b"x"])
    connector, pattern = rabbit.connector(), request("*.dlq")
    rabbit.node.evaluate(f"{_STATISTICS_ARE_OFF}, true)")
    try:
        limits = connector.limits([to_queue("orders")])[to_queue("orders")]
        seen, reading = connector.inspect(pattern.source), connector.read(pattern)
        empty = connector.gauge(request(rabbit.queue()).source)
        fates = {(fate.name, fate.death): fate.verdict for fate in connector.coverage()}
    finally:
        rabbit.node.evaluate(f"{_STATISTICS_ARE_OFF}, false)")
    reading.close()
    assert (seen.depth, reading.snapshot) == (1, 1)
    said = "(Stats in management UI are disabled on this node); whether a consumer holds a classic queue"
    assert said in " ".join(seen.warnings)
    assert said in " ".join(reading.notes)
    assert "statistics" in " ".join(seen.warnings)
    assert rabbit.version < (4,) or limits.letters == 0
    assert fates["orders", "reject"] == "unknown"
    assert (empty.depth, empty.note) == (0, "")


@on_private_nodes
def test_dead_letter_queues_are_discovered_by_arguments_policies_and_names(rabbit: Rabbit) -> None:
    channel, by_key = rabbit.channel, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "collected"}
    rabbit.set_policy("^bills$", {"dead-letter-exchange": "dead"})
    for queue, arguments in {
        "orders": by_key, "bills": {}, "bound": {"x-queue-type": "quorum"}, "collected": {}, "orders.dlq": {},
    }.items():  # fmt: skip
        channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.exchange_declare("dead", "fanout")
    channel.queue_bind("bound", "dead")
    rabbit.wait_for_statistics("bills")
    with pytest.raises(UsageError, match="needs management_url"):
        rabbit.connector(management_url=None).discover()
    found = {place.name: place for place in rabbit.connector().discover()}
    assert {name: place.because for name, place in found.items()} == {
        "bound": "dead letters of bills go there",
        "collected": "dead letters of orders go there",
        "orders.dlq": "its name says so",
    }
    assert (found["bound"].kind, found["bound"].source) == ("quorum", {"queue": "bound"})


@on_private_nodes
def test_what_waits_and_what_is_worked_on_is_no_dead_letter_queue(rabbit: Rabbit) -> None:
    channel = rabbit.channel
    loop = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.wait"}
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders", "x-message-ttl": 600_000}
    level = {"x-dead-letter-exchange": "nsb.v2.delay-delivery", "x-message-ttl": 1000}
    circle = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "round", "x-message-ttl": 600_000}
    ends = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "kept"}
    for queue, arguments in {
        "orders": loop, "orders.wait": back, "nsb.v2.delay-level-00": level, "billing": {}, "round": circle,
        "work": ends, "kept": {"x-queue-type": "stream"}, "*.dlq": {},
    }.items():  # fmt: skip
        channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.exchange_declare("nsb.v2.delay-delivery", "topic")
    channel.queue_bind("billing", "nsb.v2.delay-delivery", "#.billing")
    connector = rabbit.connector()
    found = {place.name: (place.source, place.kind) for place in connector.discover()}
    assert found == {"*.dlq": ({"queue": "[*].dlq"}, "classic"), "kept": ({"queue": "kept"}, "stream")}
    rabbit.publish("orders", [b"one"])
    rabbit.wait_for_statistics("orders")
    said = {name: " ".join(rabbit.inspect(name).warnings) for name in ("orders", "orders.wait", "round")}
    assert "its letters are alive: what dies here goes to orders.wait and comes back" in said["orders"]
    assert "its letters are alive: what dies here goes to orders and comes back" in said["orders.wait"]
    assert "pull in time" not in said["orders.wait"]
    assert "RabbitMQ drops what goes in such a circle" in said["round"]
    rabbit.publish("round", [b"gone"], expiration="50")
    eventually(lambda: rabbit.depth("round") == 0)
    eventually(lambda: "publishers have sent 1 messages" in " ".join(rabbit.inspect("orders").warnings))


@on_private_nodes
def test_letters_that_wait_in_their_queue_for_room_in_a_full_one_are_counted(rabbit: Rabbit) -> None:
    """At-least-once dead-lettering: the queue that they died in has them, and shows none."""
    channel = rabbit.channel
    full = {"x-max-length": 3, "x-overflow": "reject-publish"}
    channel.queue_declare("full.dlq", durable=True, arguments=full)
    safe = {
        "x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full.dlq",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    }  # fmt: skip
    channel.queue_declare("orders", durable=True, arguments=safe)
    rabbit.fill("orders", 20)
    rabbit.reject("orders", 20)
    rabbit.wait_for("orders", 0)
    said = "wait in orders for room in this queue"
    eventually(lambda: [w for w in rabbit.inspect("full.dlq").warnings if said in w])
    reading = rabbit.read("full.dlq")
    notes = " ".join(reading.notes)
    reading.close()
    assert said in notes


@on_private_nodes
def test_a_queue_that_is_not_there_is_told_with_the_one_probably_meant(rabbit: Rabbit) -> None:
    rabbit.channel.queue_declare("orders.dead", durable=True)
    connector, wanted = rabbit.connector(), request("orders.daed")
    for ask in (lambda: connector.inspect(wanted.source), lambda: connector.read(wanted)):
        with pytest.raises(NotFound, match=r"did you mean 'orders\.dead'"):
            ask()


@on_private_nodes
def test_the_depth_of_a_pattern_is_that_of_its_queues_however_many(rabbit: Rabbit) -> None:
    for number in range(25):
        rabbit.channel.queue_declare(f"{number}.dlq", durable=True)
        rabbit.publish(f"{number}.dlq", [b"x"] * (number % 3))
    rabbit.channel.queue_declare("own.dlq", exclusive=True)
    found = rabbit.connector().gauge(request("*.dlq").source)
    assert (found.depth, found.consumers) == (sum(number % 3 for number in range(25)), 0)


def test_a_queue_that_another_connection_owns_is_not_taken_for_one_that_is_not_there(rabbit: Rabbit) -> None:
    rabbit.channel.queue_declare("mine", exclusive=True)
    with pytest.raises(AccessDenied, match="another connection holds it exclusively"):
        rabbit.connector().gauge(request("mine").source)
