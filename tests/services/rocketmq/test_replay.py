"""Sending letters back into real RocketMQ brokers, and knowing whether they arrived."""

import json
import zlib
from pathlib import Path

import pytest
from support.brokers.rocketmq.driver import unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.brokers.rocketmq.sending import found, outgoing, published, shown
from support.waiting import eventually
from support.wire_builders import configure, dlq

from dlq.connectors.base import SendRequest, Sent, Target
from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.core.clock import now
from dlq.core.headers.rocketmq_topics import DISCARDED, HALF
from dlq.core.record import Record

pytestmark = pytest.mark.rocketmq


def replay(rocket: Rocket, records: list[Record], to: str, window: int = 64) -> list[Sent]:
    """Each goes where `to` says; its name is of no other run."""
    letters = [
        one._replace(target=rocket.connector.target_of(one.record, to) or one.target)
        for one in outgoing(records, Target("topic", "nowhere"), now())
    ]
    return published(rocket.connector, letters, window)


def dead(rocket: Rocket, body: bytes = b"x", **properties: str) -> Record:
    rocket.driver.dead_letter(rocket.topic, rocket.group, body, properties)
    return rocket.read().records[-1]


def test_a_letter_goes_back_to_its_topic_without_the_brokers_own_properties(rocket: Rocket) -> None:
    record = dead(rocket, b"a\0\xff", KEYS="k1", TAGS="t", user="日本", __SHARDINGKEY="s")
    (sent,) = replay(rocket, [record], "origin")
    assert sent.outcome == "confirmed"
    original, again = rocket.driver.newest(rocket.topic, count=2)
    was, has = parse_properties(original.properties), parse_properties(again.properties)
    assert again.body == b"a\0\xff"
    assert all(has[name] == was[name] for name in ("UNIQ_KEY", "KEYS", "TAGS", "user", "__SHARDINGKEY"))
    assert has["dlq_replay_lap"] == "1"
    assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"} & set(has)


def test_the_failed_group_alone_gets_it_again(rocket: Rocket) -> None:
    record = dead(rocket)
    rocket.driver.create_topic(f"%RETRY%{rocket.group}")
    before = rocket.driver.end(rocket.topic)
    sent = eventually(lambda: [s for s in replay(rocket, [record], "group") if s.outcome == "confirmed"])
    assert len(sent) == 1
    message = rocket.driver.newest(f"%RETRY%{rocket.group}")[-1]
    assert parse_properties(message.properties)["RETRY_TOPIC"] == rocket.topic
    assert message.reconsume_times == 0
    assert rocket.driver.end(rocket.topic) == before


def test_what_a_broker_puts_among_the_dead_letters_of_an_ordered_group_is_found_there(rocket: Rocket) -> None:
    record, target, is_newest = dead(rocket), Target("group", rocket.group), rocket.cluster.version >= "5"
    rocket.driver.read_retries(rocket.group)
    eventually(lambda: rocket.connector.missing_targets([target]) == {})
    letters, before = outgoing([record], target, now()), rocket.connector.bounds([target])
    assert shown(rocket.connector, letters, before) == ["not_sent"]
    queues = [{"topic": rocket.topic, "brokerName": "broker-a", "queueId": 0}]
    locked = {"consumerGroup": rocket.group, "clientId": "c", "mqSet": queues}
    rocket.driver.ok(LOCK_QUEUES, {}, json.dumps(locked).encode())  # for a minute
    (sent,) = published(rocket.connector, letters)
    assert sent.outcome == "confirmed"
    eventually(lambda: rocket.driver.end(f"%DLQ%{rocket.group}") == 1 + is_newest)
    assert shown(rocket.connector, letters, before) == ["sent"]


LOCK_QUEUES = 41


def test_a_group_that_reads_but_not_its_retry_topic_is_refused_and_has_no_consumers(rocket: Rocket) -> None:
    """4.9 does not tell what a group reads, but has no POP either."""
    knows_pop = not rocket.cluster.version.startswith("4")
    record, target = dead(rocket), Target("group", rocket.group)
    rocket.wait_for_routes(f"%RETRY%{rocket.group}")
    rocket.driver.commit_offset(rocket.group, rocket.topic)
    audience = [] if knows_pop else [f"group {rocket.group}"]
    eventually(lambda: rocket.connector.consumers([target]) == {target: audience})
    (sent,) = replay(rocket, [record], "group")
    assert sent.outcome == ("refused" if knows_pop else "confirmed")
    assert ("consume in order, or by POP or gRPC" in str(sent.detail)) == knows_pop


def test_a_committed_transactions_letter_does_not_become_a_half_message_again(rocket: Rocket) -> None:
    half = rocket.driver.half(rocket.topic, b"tx")
    rocket.driver.finish_at_once(half, commit=True)
    (real,) = rocket.driver.newest(rocket.topic)
    rocket.driver.send_back(real, rocket.group)
    rocket.driver.newest(rocket.dead)
    (record,) = rocket.read().records
    assert record.properties["TRAN_MSG"] == "true"
    copies = len(rocket.driver.copies(half.key))
    (sent,) = replay(rocket, [record], "origin")
    assert sent.outcome == "confirmed"
    _, again = rocket.driver.newest(rocket.topic, count=2)
    assert (again.body, again.sys_flag) == (b"tx", 0)
    assert len(rocket.driver.copies(half.key)) == copies


def test_letters_that_go_together_keep_what_is_their_own(rocket: Rocket) -> None:
    """Beside large ones, an ordered one, and one that the broker refuses."""
    record, name = dead(rocket), f"{rocket.topic}-too"
    rocket.driver.create_topic(name)
    rocket.wait_for_routes(name)
    packed = zlib.compress(b"compress me" * 1000)
    records = [
        record._replace(
            raw_properties=None,
            properties={"UNIQ_KEY": unique_key(), "n": str(n), "user": "日本" * (n % 7)},
            headers={"flag": n},
            body=packed if n % 5 == 0 else b"%d\0" % n * (1 + 40 * n),
            flags=1 if n % 5 == 0 else 0,
            origin=name if n % 3 == 0 else rocket.topic,
        )
        for n in range(300)
    ]
    records[7] = records[7]._replace(properties={"n": "7", "big": "v" * 40_000})
    records[8] = records[8]._replace(body=b"8" * 200_000)
    records[11] = records[11]._replace(properties={"n": "11", "__SHARDINGKEY": "s"})
    outcomes = {sent.number: sent.outcome for sent in replay(rocket, records, "origin", 200)}
    assert outcomes == {n: "refused" if n == 7 else "confirmed" for n in range(300)}
    eventually(lambda: rocket.driver.end(rocket.topic) + rocket.driver.end(name) == 300)
    arrived = {
        int(properties["n"]): (
            message.topic, message.body, message.sys_flag, message.flag, properties["user"],
        )
        for topic in (rocket.topic, name)
        for message in rocket.driver.messages(topic)
        if "n" in (properties := {"user": "", **parse_properties(message.properties)})
    }  # fmt: skip
    assert arrived == {
        n: (one.origin, one.body, one.flags, n, one.properties.get("user", ""))
        for n, one in enumerate(records)
        if n != 7
    }


def test_a_broker_whose_limit_is_smaller_than_a_batch_gets_letters_alone(rocket: Rocket) -> None:
    """5.x refuses the batch; 4.9 counts each message of it. One of them is too large by itself."""
    record = dead(rocket)._replace(body=b"x" * 10_000)
    rocket.driver.set("maxMessageSize", 30_000)
    try:
        sent = replay(rocket, [record._replace(body=b"x" * 600_000), *[record] * 40], "origin")
    finally:
        rocket.driver.set("maxMessageSize", 4 * 2**20)
    assert [one.outcome for one in sent] == ["refused"] + ["confirmed"] * 40
    assert "its body of 600000 bytes is more than maxMessageSize = 30000 there; raise it" in str(
        sent[0].detail
    )
    eventually(lambda: rocket.driver.end(rocket.topic) == 41)


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_a_compressed_body_goes_back_as_it_was_stored(rocket: Rocket, sys_flag: int) -> None:
    stored = zlib.compress(b"compress me" * 1000)
    rocket.driver.send(rocket.topic, stored, {"UNIQ_KEY": unique_key()}, f=sys_flag, h=7)
    rocket.driver.send_back(rocket.driver.newest(rocket.topic)[0], rocket.group)
    rocket.driver.newest(rocket.dead)
    replay(rocket, rocket.read().records, "origin")
    again = rocket.driver.newest(rocket.topic, count=2)[-1]
    assert (again.body, again.sys_flag, again.flag) == (stored, sys_flag, 7)


def test_what_the_broker_refuses_is_refused_with_its_words(rocket: Rocket) -> None:
    """It adds properties of its own, by which these become too many."""
    record = dead(rocket)._replace(raw_properties=None, properties={"big": "v" * 32_600})
    (sent,) = replay(rocket, [record], "origin")
    assert (sent.outcome, "code 13" in str(sent.detail)) == ("refused", True)


def test_letters_with_one_sharding_key_keep_their_order(rocket: Rocket) -> None:
    rocket.driver.create_topic(f"{rocket.topic}-ordered", queues=4)
    record = dead(rocket)
    keys = [f"order-{i % 3}" for i in range(300)]
    records = [
        record._replace(properties={"n": str(i), "__SHARDINGKEY": key}, raw_properties=None)
        for i, key in enumerate(keys)
    ]
    eventually(lambda: replay(rocket, records[:1], f"topic:{rocket.topic}-ordered")[0].outcome == "confirmed")
    replay(rocket, records[1:], f"topic:{rocket.topic}-ordered")
    for queue in range(4):
        messages = [
            parse_properties(m.properties) for m in rocket.driver.messages(f"{rocket.topic}-ordered", queue)
        ]
        numbers = [int(m["n"]) for m in messages]
        assert numbers == sorted(numbers)


def test_absence_is_not_proven_for_what_was_sent_before_the_bounds(rocket: Rocket) -> None:
    target = Target("topic", rocket.topic)
    absent, since = outgoing([dead(rocket)], target), now()
    before = rocket.connector.bounds([target])
    assert found(rocket.connector, absent, before, since).shown == {0: "unknown"}


def discarded(rocket: Rocket, body: bytes = b"money", **properties: str) -> Record:
    half = rocket.driver.half(rocket.topic, body, properties)
    source = rocket.request().source.__class__("s", "pay", transactions=True)

    def look() -> list[Record]:
        records = rocket.read(source=source).records
        known = "body" if properties.get("UNIQ_KEY") == "" else "message_id"
        wanted = {"body": body, "message_id": half.key}[known]
        return [r for r in records if r.dead_letter_queue == DISCARDED and getattr(r, known) == wanted]

    return eventually(look)[0]


def test_a_discarded_transaction_is_published_as_an_ordinary_message(rocket: Rocket) -> None:
    record = discarded(rocket, KEYS="k1")
    (sent,) = replay(rocket, [record], "origin")
    assert sent.outcome == "confirmed"
    (message,) = rocket.driver.newest(rocket.topic)
    properties = parse_properties(message.properties)
    assert (message.body, message.sys_flag, properties["KEYS"]) == (b"money", 0, "k1")
    assert properties["UNIQ_KEY"] == record.message_id
    assert not {"TRAN_MSG", "REAL_QID", "TRANSACTION_CHECK_TIMES", "PGROUP"} & set(properties)


def test_a_check_is_resumed_and_the_resumption_is_found(rocket: Rocket) -> None:
    record = discarded(rocket)
    ends, target = rocket.driver.end(HALF), rocket.connector.target_of(record, "resume")
    assert target == Target("resume", rocket.topic)
    before = rocket.connector.bounds([target])
    letters = outgoing([record], target, now())
    assert shown(rocket.connector, letters, before) == ["not_sent"]
    publisher, told = rocket.connector.publisher(SendRequest("plan", 1)), list[int]()
    (sent,) = publisher.publish(iter(letters), told.extend)
    publisher.close()
    assert (sent.outcome, told) == ("confirmed", [0])
    eventually(lambda: rocket.driver.end(HALF) > ends)
    assert shown(rocket.connector, letters, before) == ["sent"]
    assert shown(rocket.connector, letters, rocket.connector.bounds([target])) == ["not_sent"]


def test_a_check_is_resumed_although_the_address_of_its_broker_has_changed(rocket: Rocket) -> None:
    """One that is not there any more keeps no other letter from going."""
    record = discarded(rocket)
    elsewhere = "0A000009" + f"{10911:08X}" + record.headers["msgId"][16:]
    moved = record._replace(headers={**record.headers, "storeHost": "10.0.0.9:10911", "msgId": elsewhere})
    imported = record._replace(broker_node=None)
    gone, *others = replay(rocket, [moved._replace(broker_node="gone"), moved, imported], "resume")
    assert gone.outcome == "unsent"
    assert "no master of gone is registered" in (gone.detail or "")
    assert [sent.outcome for sent in others] == ["confirmed", "confirmed"]


def test_a_check_is_resumed_by_the_command(rocket: Rocket, tmp_path: Path) -> None:
    record = discarded(rocket)
    ends = rocket.driver.end(HALF)
    configure(tmp_path, f'kind = "rocketmq"\nurl = "{rocket.cluster.url}"', "transactions = true")
    dlq(tmp_path, "pull")
    of_this = ("--where", f"message_id = '{record.message_id}' and dead_letter_queue = '{DISCARDED}'")
    plan = dlq(tmp_path, "replay", "plan", *of_this, "--to", "resume", "--any-advice")["plan"]
    assert dlq(tmp_path, "replay", "apply", plan)["states"]["confirmed"] == 1
    eventually(lambda: rocket.driver.end(HALF) > ends)


def test_nothing_is_known_of_the_resumption_of_a_half_message_without_a_unique_key(rocket: Rocket) -> None:
    """Brokers since 5.0 give it one."""
    record = discarded(rocket, b"nameless", UNIQ_KEY="")
    ends, target = rocket.driver.end(HALF), Target("resume", rocket.topic)
    before, letters = rocket.connector.bounds([target]), outgoing([record], target, now())
    assert [sent.outcome for sent in published(rocket.connector, letters)] == ["confirmed"]
    eventually(lambda: rocket.driver.end(HALF) > ends)
    proof = found(rocket.connector, letters, before)
    assert proof.shown == {0: "unknown" if rocket.cluster.version.startswith("4") else "sent"}
    assert all("has no UNIQ_KEY" in doubt for doubt in proof.doubts)


def test_another_message_in_the_place_of_a_half_message_is_not_resumed(rocket: Rocket) -> None:
    """A broker that lost its store has others there, and puts back whatever it finds."""
    record = discarded(rocket)
    rocket.driver.send(rocket.topic, b"alive")
    (other,) = rocket.driver.newest(rocket.topic)
    here = f"{other.store_host.hex().upper()}{other.commit_log_offset:016X}"
    headers = {**record.headers, "msgId": here, "commitLogOffset": str(other.commit_log_offset)}
    (sent,) = replay(rocket, [record._replace(headers=headers)], "resume")
    assert (sent.outcome, sent.detail) == ("refused", "it does not lie any more where it was")
    assert b"alive" not in {half.body for half in rocket.driver.messages(HALF)}


def test_a_compressed_half_message_is_not_resumed_where_that_damages_it(rocket: Rocket) -> None:
    record = discarded(rocket)._replace(flags=1)
    (sent,) = replay(rocket, [record], "resume")
    assert sent.outcome == ("refused" if rocket.cluster.version.startswith("4") else "confirmed")
