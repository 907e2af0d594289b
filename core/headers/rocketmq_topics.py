"""What RocketMQ calls its own topics, and what a retry topic tells of the origin.

Where letters are captured and where they are classified must agree on it.
"""

DEAD_LETTERS = "%DLQ%"
RETRY = "%RETRY%"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Op records: the broker's notes that half messages have ended."""
DELAYED = "SCHEDULE_TOPIC_XXXX"
"""Messages that wait for their time, such as the next try of a group."""
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"


def origin_of(topic: str | None, group: str) -> str | None:
    """Return the topic that a dead letter of `group` came from, by its DLQ_ORIGIN_TOPIC or RETRY_TOPIC.

    REAL_TOPIC is no evidence: after a delayed retry it is the retry topic. A POP consumer's retry topic holds
    the origin: `%RETRY%<group>_<topic>`, or with `+` (common/KeyBuilder.parseNormalTopic).
    """
    if not topic or not topic.startswith(RETRY):
        return topic or None
    marked = topic.removeprefix(f"{RETRY}{group}")
    return marked[1:] or None if marked[:1] in ("+", "_", "") else topic
