"""What stores outside say changes what is advised: consumed, consuming, no record, expired record."""

from collections.abc import Iterator
from typing import Any

import pytest
from archives import write_segment
from pyspark.sql import SparkSession
from unit.analyzers.letters import died
from unit.analyzers.rocket_letters import BORN, MINUTE, dead

from dlq.analyzers.spark.job import analyze
from dlq.archive import analyses, evidence
from dlq.archive.evidence import Snapshot
from dlq.archive.store import LocalStore
from dlq.core.configuration import parse
from dlq.core.evidence import Fact
from dlq.core.record import Record

pytestmark = pytest.mark.usefixtures("spark")

DIED = (BORN + MINUTE) * 1000
HOUR = 3_600_000_000
ASKED = DIED + 2 * HOUR
LATER, BEFORE = ASKED + HOUR, ASKED - HOUR
SETTINGS = parse(
    {
        "evidence": {
            "dedup": {"kind": "rocketmq-dedup", "url": "redis://cache", "sources": ["pay"]},
            "shine": {"kind": "shine-mq", "url": "redis://cache", "sources": ["shop*"]},
            "away": {"kind": "rocketmq-dedup", "url": "redis://cache", "sources": ["lost"]},
        }
    }
)

# The letter, what the listener's store has of it, and: what is said, what is advised.
CONSUMED: list[tuple[Record, list[Fact], str, str]] = [
    (dead("done"), [Fact("pay:orders:done", "CONSUMED", LATER)], "consumed, its record expires", "never"),
    (dead("done-for-ever"), [Fact("pay:orders:done-for-ever", "CONSUMED")], "consumed", "never"),
    (dead("done-once"), [Fact("pay:orders:done-once", "CONSUMED", BEFORE)], "expired record", "never"),
    (dead("at-it"), [Fact("pay:orders:at-it", "CONSUMING", LATER)], "consuming, its record", "hold"),
    (dead("crashed"), [Fact("pay:orders:crashed", "CONSUMING", BEFORE)], "consuming; expired", "check_first"),
    (dead("tagged", TAGS="paid"), [Fact("pay:orders:paid:tagged", "CONSUMED", LATER)], "consumed", "never"),
    (dead("other-tag", TAGS="paid"), [Fact("pay:orders:other-tag", "CONSUMED")], "no record", "fix_first"),
    (dead("other-group", "bill"), [Fact("pay:orders:other-group", "CONSUMED")], "no record", "fix_first"),
    (
        dead("pop", RETRY_TOPIC="%RETRY%pay_orders"),
        [Fact("pay:orders:pop", "CONSUMED", LATER)],
        "consumed",
        "never",
    ),
    (dead("m1")._replace(key="order-1"), [Fact("pay:orders:order-1", "CONSUMED", LATER)], "consumed", "never"),
    (
        dead("both"),
        [Fact("pay:orders:both", "CONSUMING", LATER), Fact("pay:orders:both", "CONSUMED", LATER)],
        "consumed",
        "never",
    ),
    (dead("odd"), [Fact("pay:orders:odd", "FOO", LATER)], "no record", "fix_first"),
    (dead("fresh"), [], "no record", "fix_first"),
    (dead("old")._replace(dead_at=ASKED - 25 * HOUR), [], "one expires after 1d", "check_first"),
    (dead("elsewhere")._replace(source="lost"), [], "away: did not answer", "check_first"),
]  # fmt: skip


def shine(message_id: str, work: str = "W", body: str | None = None, queue: str = "orders") -> Record:
    text = body or f'{{"coordinator": "redisCoordinator", "data": {{"checkBackId": "{work}", "data": 1}}}}'
    return died(
        ("rejected", queue, 1), source="shop", headers={"__TypeId__": "top.arkstack.EventMessage"},
        message_id=message_id, key=message_id, body=text.encode(), body_size=len(text), body_sha256=text,
        dead_at=DIED, captured_at=DIED,
    )  # fmt: skip


FIRST = "redisCoordinator_order_10.0.0.1_1795000000001"
AGAIN = "order_10.0.0.1_1795000000002"
COORDINATED: list[tuple[Record, list[Fact], str | None, str, str]] = [
    (shine("closed", "W1"), [], None, "nothing open", "fix_first"),
    (shine("ready", "W2"), [Fact("message:ready", "ready")], "ready", "sends it again", "hold"),
    (shine("undone", "W3"), [Fact("message:undone", "rolled_back")], "rolled_back", "rolled back", "never"),
    (shine("open", "W4"), [Fact("work:W4", "prepared")], "prepared", "prepared", "check_first"),
    (shine("counted", "W5"), [Fact("message:counted", "retries", None, 2)], None, "2 failed", "fix_first"),
    (shine("odd", "W6", body="no json"), [Fact("work:W6", "prepared")], None, "nothing open", "fix_first"),
    (shine(AGAIN, "W7"), [], "compensated", "after a check-back", "fix_first"),
    (shine(FIRST, "W8"), [], None, "nothing open", "fix_first"),
]


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    store = LocalStore(str(tmp_path_factory.mktemp("archive")))
    letters = [case[0] for case in CONSUMED] + [case[0] for case in COORDINATED] + RESENT
    numbered = [one._replace(record_id=f"{n:032x}") for n, one in enumerate(letters)]
    for source in ("pay", "lost", "shop"):
        write_segment(store, source, [one for one in numbered if one.source == source])
    snapshots = [
        evidence.write(store, "dedup", ASKED, (fact for case in CONSUMED for fact in case[1])),
        evidence.write(store, "shine", ASKED, (fact for case in COORDINATED for fact in case[1])),
        Snapshot("away", ASKED, error="evidence.away: Redis does not answer"),
    ]
    found = analyze(store, SETTINGS, snapshots=snapshots)
    assert found.extra["evidence"]["away"]["error"] == "evidence.away: Redis does not answer"
    files = [store.url(name) for name in analyses.load(store, found.analysis).tables["verdicts"]]
    rows = {row.record_id: row for row in spark.read.parquet(*files).collect()}
    return [rows[f"{n:032x}"] for n in range(len(letters))]


def test_what_its_consumer_did_decides_what_is_advised(verdicts: Any) -> None:
    rows = verdicts[: len(CONSUMED)]
    assert [row.advice for row in rows] == [case[3] for case in CONSUMED]
    for row, case in zip(rows, CONSUMED, strict=True):
        assert case[2] in row.evidence
        assert row.evidence.startswith("reconsumeTimes 17; ") or "RETRY_TOPIC" in row.evidence


def test_its_producers_coordinator_knows_how_the_transaction_stands(verdicts: Any) -> None:
    rows = verdicts[len(CONSUMED) :][: len(COORDINATED)]
    assert [(row.transaction_state, row.advice) for row in rows] == [
        (case[2], case[4]) for case in COORDINATED
    ]
    for row, case in zip(rows, COORDINATED, strict=True):
        assert f"shine: {case[3]}" in row.evidence or case[3] in row.evidence.partition("shine: ")[2]


RESENT = [
    shine("A", "W9"),
    shine("A", "W9"),
    shine("B", "W9"),
    shine("C", "W10"),
    shine("A", "W9", queue="b"),
]


def test_a_resend_is_told_from_a_second_message_about_the_same_work(verdicts: Any) -> None:
    first, again, second, other, elsewhere = verdicts[-len(RESENT) :]
    assert [row.duplicate_kind for row in (first, again, second)] == ["producer_resend"] * 2 + [
        "business_resend"
    ]
    assert first.duplicate_group == again.duplicate_group == second.duplicate_group != None  # noqa: E711
    assert (again.advice, second.advice) == ("never", "check_first")
    assert other.duplicate_kind is None
    assert elsewhere.duplicate_kind == "several_groups"
