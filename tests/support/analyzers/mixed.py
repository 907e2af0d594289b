"""An archive of all brokers: scenes of letters that say something together, among letters of every kind."""

import json
from collections.abc import Callable
from typing import Any

from support.analyzers.activemq_texts import TEXTS
from support.analyzers.letters import died, imported
from support.analyzers.rocket_letters import BORN, MINUTE, dead, letter
from support.archives import write_segment
from unit.analyzers.test_frameworks import TABLE as OF_FRAMEWORKS
from unit.analyzers.test_rules_kafka import TABLE as OF_KAFKA
from unit.analyzers.test_rules_rabbitmq import TABLE as OF_RABBITMQ

from dlq.archive.storage.store import LocalStore
from dlq.core.configuration import parse
from dlq.core.record import Record
from dlq.core.settings import Settings
from dlq.core.store_facts import Fact

HOUR = 60 * MINUTE
DIED = (BORN + MINUTE) * 1000
ASKED = DIED + 2 * HOUR * 1000
BEFORE, LATER = ASKED - HOUR * 1000, ASKED + HOUR * 1000
PRODUCER = "ID:shop-36041-1795195175398-1:75:1:1"
CONNECTION = "ID:vm-33407-1795194807825-3:1"
CONSUMER = f"{CONNECTION}:1:1"
LOOKED = "20261118T111541-ab12"
"""The pull that looked nine minutes after the transactions began."""


def rejected(message_id: str | None = None, body: str = "", queue: str = "orders", **columns: Any) -> Record:
    content = {"body": body.encode(), "body_size": len(body), "body_sha256": f"sha of {body}"}
    given = {"broker": "twins", "key": message_id, "dead_at": DIED, **content, **columns}
    return died(("rejected", queue, 1), message_id=message_id, **given)


def suppressed(number: int, producer: str = PRODUCER, consumer: str = CONSUMER, **headers: str) -> Record:
    text = f"java.lang.Throwable: Suppressing duplicate delivery on connection, consumer {consumer}"
    given = {"message-id": f"{producer}:{number}", "original-destination": "/queue/orders", "timestamp": str(BORN)}  # fmt: skip
    own = {"dlqDeliveryFailureCause": text, "originalExpiration": "0"}
    document = {"broker_kind": "activemq", "queue": "ActiveMQ.DLQ", "headers": {**given, **own, **headers}}
    return imported(document)._replace(source="legacy", broker="amq")


def shine(message_id: str, work: str, queue: str = "orders") -> Record:
    text = f'{{"coordinator": "redisCoordinator", "data": {{"checkBackId": "{work}", "data": 1}}}}'
    return rejected(message_id, text, queue, source="shop", broker="shine", headers={"__TypeId__": "top.arkstack.EventMessage"})  # fmt: skip


def event(subscription: str, address: str = "news") -> Record:
    """A copy of the same event, which Artemis gives one id in all subscriptions."""
    where = {"_AMQ_ORIG_ADDRESS": address, "_AMQ_ORIG_QUEUE": subscription, "_AMQ_ORIG_ROUTING_TYPE": "0"}
    known = {"message-id": "142", "_AMQ_ORIG_MESSAGE_ID": "142", **where}
    document = {"broker_kind": "artemis", "queue": "DLQ", "headers": known, "body_text": "event"}
    return imported(document)._replace(source="twins", broker=address)


def half(key: str | None, offset: int, checks: int = 0, **fields: Any) -> Record:
    named = {} if key is None else {"UNIQ_KEY": key}
    counted = {"TRANSACTION_CHECK_TIMES": str(checks)} if checks else {}
    properties = {**named, "REAL_TOPIC": "orders", "PGROUP": "tx", "TRAN_MSG": "true", **counted}
    return letter("RMQ_SYS_TRANS_HALF_TOPIC", properties, offset=offset, **fields)._replace(source="bank")


def ends(text: str, **fields: Any) -> Record:
    stored = {"stored": 2 * MINUTE, **fields}
    return letter("RMQ_SYS_TRANS_OP_HALF_TOPIC", {"TAGS": "d"}, text.encode(), **stored)._replace(
        source="bank"
    )


def real(key: str, prepared: int, **fields: Any) -> Record:
    stored = {"stored": 2 * MINUTE, **fields}
    return letter("orders", {"UNIQ_KEY": key}, flags=8, prepared=prepared, **stored)._replace(source="bank")


def given_up(key: str, checks: int = 15, **fields: Any) -> Record:
    properties = {"UNIQ_KEY": key, "REAL_TOPIC": "orders", "PGROUP": "tx", "TRANSACTION_CHECK_TIMES": str(checks)}  # fmt: skip
    stored = {"stored": 8 * MINUTE, **fields}
    return letter("TRANS_CHECK_MAX_TIME_TOPIC", properties, **stored)._replace(source="bank")


def committed(key: str, number: int) -> Record:
    properties = {"UNIQ_KEY": key, "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": f"at-{number}", "TRAN_MSG": "true"}  # fmt: skip
    return letter("%DLQ%pay", properties, flags=8, times=17)._replace(source="stock", broker="rocket-twins")


def twin(key: str = "", group: str = "pay", **properties: str) -> Record:
    return dead(key, group, **properties)._replace(source="stock", broker="rocket-twins")


# Letters, and what each of them is to the others.
TWINS: list[tuple[Record, str | None]] = [
    (rejected(), None),
    (rejected(), None),
    (rejected("m1", "a"), "same_message_id"),
    (rejected("m1", "a"), "same_message_id"),
    (rejected("m2", "a2"), "same_message_id"),
    (rejected("m2", "b2"), "same_message_id"),
    (rejected("m3", "a3", key="k3"), "same_key"),
    (rejected("m4", "a4", key="k3"), "same_key"),
    (rejected(None, "same"), "same_body"),
    (rejected(None, "same"), "same_body"),
    # The same message dead at two consumers' queues: each has its own.
    (rejected("m7", "a7"), "several_groups"),
    (rejected("m7", "a7", "billing"), "several_groups"),
    (event("pay"), "several_groups"),
    (event("mail"), "several_groups"),
    (event("pay", "old"), "same_message_id"),
    (event("pay", "old"), "same_message_id"),
    # One death, captured in two dead-letter queues.
    (rejected("m8", "a8"), "same_message_id"),
    (rejected("m8", "a8", dead_letter_queue="all.dlq", source="all"), "same_message_id"),
    # A replay that died again is a new lap.
    (rejected("m9", "a9"), None),
    (rejected("m9", "a9", headers={"dlq_replay_lap": "1"}), None),
    (rejected("m10", "a10"), None),
    (rejected("m10", "a10", broker="other"), None),
    (rejected("", "a11"), None),
    (rejected("", "b11"), None),
    (shine("A", "W9"), "producer_resend"),
    (shine("A", "W9"), "producer_resend"),
    (shine("B", "W9"), "business_resend"),
    (shine("C", "W10"), None),
    (shine("A", "W9", "b"), "several_groups"),
    (twin("single"), None),
    (twin("twice"), "redelivery_or_rebalance"),
    (twin("twice"), "redelivery_or_rebalance"),
    (twin("fallback"), "redelivery_or_rebalance"),
    (twin("fallback", ORIGIN_MESSAGE_ID="fallback", RECONSUME_TIME="17"), "redelivery_or_rebalance"),
    (twin("resent", ORIGIN_MESSAGE_ID="a"), "producer_resend"),
    (twin("resent", ORIGIN_MESSAGE_ID="b"), "producer_resend"),
    (committed("paid", 100), "double_commit"),
    (committed("paid", 200), "double_commit"),
    (twin("new-id-1", KEYS="order 17"), "business_resend"),
    (twin("new-id-2", KEYS="order 17"), "business_resend"),
    (twin("shared"), "several_groups"),
    (twin("shared", "stock"), "several_groups"),
    (twin("again"), None),
    (twin("again", dlq_replay_id="r", dlq_replay_lap="1"), "replay_returned"),
    (twin(), None),
    (twin(), None),
]
TRANSACTIONS = [
    half("young", 0),
    half("committed", 1), real("committed", 100),
    half("rolled-back", 2),
    half("checked-out", 4), half("checked-out", 5, checks=15, stored=7 * MINUTE), given_up("checked-out"),
    half("too-old", 6), given_up("too-old", checks=1, stored=73 * HOUR),
    half("just-now", 14, node="broker-b", seen=1000),
    given_up("just-now", node="broker-b", stored=9 * MINUTE, seen=1000),
    half("orphan", 19), given_up("orphan"), half("orphan", 3, node="broker-c"), real("orphan", 300, node="broker-c"),
    half("elsewhere", 2, node="broker-b"),
    half(None, 18),
    ends("1"), ends("2, 18,\n", stored=9 * MINUTE), ends("7,noise,"),
]  # fmt: skip
STATES = {
    "young": "pending", "committed": "committed", "rolled-back": "rolled_back", "checked-out": "check_max_exceeded",
    "too-old": "check_skipped", "just-now": "pending", "orphan": "committed", "elsewhere": "pending",
}  # fmt: skip
BURST = [
    *(suppressed(number) for number in (9, 10, 11, 20)),
    suppressed(1, f"{PRODUCER}0", f"{CONNECTION}:1:2", **{"original-destination": "/queue/stock"}),
    suppressed(1, consumer="ID:vm-33407-1795194807825-4:1:1:1"),
]
"""Five of one connection, and one of another."""

# The letter, and: what its consumer's store has of it, what is said, what is advised.
ASKED_FOR: list[tuple[Record, list[Fact], str, str]] = [
    (dead("done"), [Fact("pay:orders:done", "CONSUMED", LATER)], "consumed, its record expires", "never"),
    (dead("crashed"), [Fact("pay:orders:crashed", "CONSUMING", BEFORE)], "consuming; expired", "check_first"),
    (dead("tagged", TAGS="paid"), [Fact("pay:orders:paid:tagged", "CONSUMED", LATER)], "consumed", "never"),
    (dead("m1")._replace(key="order-1"), [Fact("pay:orders:order-1", "CONSUMED", LATER)], "consumed", "never"),
    (dead("fresh"), [], "dedup: no record", "fix_first"),
    (dead("lost")._replace(source="lost"), [], "away: did not answer", "check_first"),
    (shine("ready", "W2"), [Fact("message:ready", "ready")], "ready", "hold"),
    (shine("open", "W4"), [Fact("work:W4", "prepared")], "shine: prepared", "check_first"),
    (shine("closed", "W1"), [], "nothing open", "fix_first"),
]  # fmt: skip
AN_HOUR = [
    rejected(f"h{n}", f"h{n}", broker="shop", source="orders", dead_at=DIED + n * 60_000_000, headers={"x-tenant": str(n)})
    for n in range(24)
]  # fmt: skip
"""Letters of one failure that died within half an hour, on a day without others."""
USUAL = [rejected(f"u{n}", f"u{n}", broker="shop", dead_at=DIED - n * 86_400_000_000) for n in range(1, 6)]
FROM_FILES = [
    *(imported({"broker_kind": "activemq", "queue": "ActiveMQ.DLQ", "headers": {
        "message-id": f"{PRODUCER}:9{n}", "original-destination": "/queue/orders", "dlqDeliveryFailureCause": text,
        "originalExpiration": "0"}})._replace(source="texts") for n, (text, _) in enumerate(TEXTS)),
    *(imported({"broker_kind": "artemis", "queue": "DLQ", "headers": {
        "_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_QUEUE": "orders", **more}})._replace(source="texts")
      for more in ({"_AMQ_ACTUAL_EXPIRY": "1762053729000"}, {}, {"_AMQ_ORIG_ADDRESS": "DLQ", "_AMQ_ORIG_QUEUE": "DLQ"})),
]  # fmt: skip
EVERY_RULE = [case[0] for table in (OF_RABBITMQ, OF_FRAMEWORKS, OF_KAFKA) for case in table]

SCENES = {
    "twins": [one for one, _ in TWINS], "transactions": TRANSACTIONS, "burst": BURST,
    "asked for": [case[0] for case in ASKED_FOR], "an hour": AN_HOUR, "the usual": USUAL, "of files": FROM_FILES,
    "every rule": EVERY_RULE,
}  # fmt: skip
_LETTERS = [(scene, one) for scene, letters in SCENES.items() for one in letters]
LETTERS = [
    one._replace(record_id=f"{n:032x}", captured_at=one.captured_at or DIED + n)
    for n, (_, one) in enumerate(_LETTERS)
]
IDS = {
    scene: [one.record_id for (name, _), one in zip(_LETTERS, LETTERS, strict=True) if name == scene]
    for scene in SCENES
}
SETTINGS: Settings = parse(
    {
        "rules": [
            {"name": "tenant", "where": "headers['x-tenant'] = '7'", "cause": "expired", "advice": "replay", "reason": "we know it"},
            {"name": "retried", "where": "body_text like '%W10%'", "advice": "hold"},
            {"name": "bank", "where": "message_id = 'young'", "cause": "unroutable"},
            {"name": "money", "where": "source = 'bank'", "advice": "check_first"},
        ],
        "evidence": {
            "dedup": {"kind": "rocketmq-dedup", "url": "redis://cache", "sources": ["pay"]},
            "shine": {"kind": "shine-mq", "url": "redis://cache", "sources": ["sh*"]},
            "away": {"kind": "rocketmq-dedup", "url": "redis://cache", "sources": ["lost"]},
        },
    }
)  # fmt: skip
HOLDS: dict[str, Callable[[Record], bool]] = {
    "tenant": lambda one: one.headers.get("x-tenant") == "7",
    "retried": lambda one: b"W10" in one.body,
    "bank": lambda one: one.message_id == "young",
    "money": lambda one: one.source == "bank",
}
TOPOLOGY: dict[str, dict[str, Any]] = {
    LOOKED: {
        "source": "bank",
        "brokers": {
            node: {"check_interval_ms": 30_000, "file_reserved_hours": 72, "op_batch_interval_ms": 3_000}
            for node in ("broker-a", "broker-b", "broker-c")
        },
    },
    "20261118T111500-0001": {
        "source": "orders", "delivery_limits": {"payments": 2, "zero": 0},
        "alternate_exchanges": ["unrouted"], "dead_letter_exchanges": {"orders": "dlx"},
    },
}  # fmt: skip


def fill(store: LocalStore) -> None:
    """Two segments of every source, and what the pulls learned."""
    for name, document in TOPOLOGY.items():
        store.put(f"topology/{name}.json", json.dumps({"format": 1, **document}).encode())
    for source in sorted({one.source for one in LETTERS}):
        mine = [one for one in LETTERS if one.source == source]
        for number, part in enumerate((mine[::2], mine[1::2])):
            if part:
                write_segment(store, f"{source}-{number}", part)
