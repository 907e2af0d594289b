"""What was imported, or edited, may say anything in any header: no such letter ends a plan."""

from collections.abc import Callable, Mapping

from support.analyzers.letters import record
from support.rows import each_row

from dlq.connectors.activemq import republish as activemq
from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.connectors.kafka import republish as kafka
from dlq.connectors.rabbitmq import republish as rabbitmq
from dlq.connectors.rocketmq import republish as rocketmq

PREVIEWS: Mapping[str, tuple[Target, Callable[[Outgoing], SendPreview]]] = {
    "activemq": (Target("queue", "q"), activemq.preview_unasked),
    "activemq by AMQP": (Target("queue", "q"), activemq.preview_by_amqp),
    "kafka": (Target("topic", "t"), kafka.preview_unasked),
    "rabbitmq": (Target("queue", "q"), rabbitmq.preview),
    "rocketmq": (Target("topic", "t"), rocketmq.preview),
}
NAMES = (
    "flag", "priority", "expires", "expiration", "timestamp", "persistent", "type", "correlation-id",
    "headers", "content-length", "AMQ_SCHEDULED_DELAY", "partition", "DELAY", "RECONSUME_TIME",
    "x-death", "sysFlag",
)  # fmt: skip
ODD = ("abc", "", "9" * 5_000, "\uff12", "1e999", "\x02", "-")


@each_row("way", PREVIEWS)
@each_row("where", ["headers", "properties"])
def test_no_text_of_a_header_ends_a_plan(way: str, where: str) -> None:
    target, preview = PREVIEWS[way]
    for name in NAMES:
        for odd in ODD:
            letter = record(broker_kind=way.partition(" ")[0], **{where: {name: odd}})
            assert isinstance(preview(Outgoing(0, letter, target, {"dlq_replay_id": "0" * 32})), SendPreview)
