"""How each kind of store is asked about a letter, and what its answer means: Spark SQL.

Sources: DedupConsumeStrategy, RedisPersist and JDBCPersit of Jaskey/RocketMQDedupListener;
DistributedTransAspect, MessageAdapterHandler and RedisCoordinator of 7le/shine-mq 2.2.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """All but `letters` and `keys` read FOUND, the columns of the letter, and those that `evidence` adds."""

    letters: str
    """Which letters it may know; columns of stage 1."""
    keys: str
    """The keys under which it may know a letter, as an array."""
    state: str
    """Its answer as `store_state`."""
    transaction: str
    """Its answer as a transaction's state."""
    words: str
    """Its answer for people; with `store_state` and `told_transaction`."""


FOUND: Mapping[str, str] = {
    "record": "max(struct(state = 'CONSUMED' AS done, until)) "
    "FILTER (WHERE state IN ('CONSUMED', 'CONSUMING'))",
    "seen": "collect_set(state)",
    "failures": "max(number) FILTER (WHERE state = 'retries')",
}
"""What the facts under a letter's keys come to."""

STATES = ("no_record", "unasked", "too_old", "abandoned", "consuming", "consumed_before", "consumed")
"""`store_state`: where several stores know a letter, the last of these holds."""

_LASTS = "coalesce(record.until > asked_at, true)"
_UNTIL = "date_format(record.until, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
_EXPIRES = f"coalesce(concat(', its record expires at ', {_UNTIL}), '')"

# A record under an unknown state is none: the listener consumes then.
_DEDUP = Kind(
    "broker_kind = 'rocketmq' AND startswith(dead_letter_queue, '%DLQ%') AND origin IS NOT NULL",
    """transform(filter(array_distinct(array(message_id, key)), k -> k <> ''), k -> concat_ws(':',
        coalesce(application, substring(dead_letter_queue, 6)), origin, nullif(tag, ''), k))""",
    f"""CASE WHEN record.done THEN if({_LASTS}, 'consumed', 'consumed_before')
        WHEN record IS NOT NULL THEN if({_LASTS}, 'consuming', 'abandoned')
        WHEN died_at < window_start THEN 'too_old' ELSE 'no_record' END""",
    "CAST(NULL AS string)",
    f"""CASE store_state WHEN 'consumed' THEN concat('consumed', {_EXPIRES})
        WHEN 'consumed_before' THEN concat('consumed; expired record, of ', {_UNTIL})
        WHEN 'consuming' THEN concat('consuming', {_EXPIRES})
        WHEN 'abandoned' THEN concat('consuming; expired record, of ', {_UNTIL})
        WHEN 'too_old' THEN concat('no record; one expires after ', kept_for, ', and it died before that')
        ELSE 'no record' END""",
)

# compensatePrepare leaves the coordinator's name out of the ids that it makes.
_CHECKED_BACK = (
    "coalesce(message_id RLIKE '_[0-9]{13}$' AND NOT startswith(message_id, concat(coordinator, '_')), false)"
)
_SHINE = Kind(
    "broker_kind IN ('rabbitmq', 'memory') AND message_id <> ''",
    "array(concat('message:', message_id), concat('work:', work))",
    "CAST(NULL AS string)",
    f"""CASE WHEN array_contains(seen, 'rolled_back') THEN 'rolled_back'
        WHEN array_contains(seen, 'ready') THEN 'ready'
        WHEN array_contains(seen, 'prepared') THEN 'prepared'
        WHEN {_CHECKED_BACK} THEN 'compensated' END""",
    f"""concat_ws(', ', CASE told_transaction
            WHEN 'rolled_back' THEN 'rolled back: its producer was told to undo the work'
            WHEN 'ready' THEN 'ready: its producer has no confirm and sends it again'
            WHEN 'prepared' THEN 'prepared: its producer has not said how the work ended' END,
        CASE WHEN {_CHECKED_BACK} THEN 'compensated: sent after a check-back' END,
        CASE WHEN told_transaction IS NULL THEN 'no record: its producer has nothing open' END,
        concat(failures, ' failed deliveries counted'))""",
)

KINDS: Mapping[str, Kind] = {"rocketmq-dedup": _DEDUP, "shine-mq": _SHINE}
