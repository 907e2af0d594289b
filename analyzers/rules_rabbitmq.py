"""RabbitMQ: what a letter's death history (x-death) and its envelope prove, in the order to ask.

A death entry stands for a (queue, reason) pair: `count` grows, `time` is the FIRST death of the pair.
In a retry loop over a TTL queue the newest entry is the wait queue's `expired`; the `rejected` entry
tells why. Sources: rabbit_dead_letter.erl and mc_amqpl.erl of 3.8 to 4.3, docs/dlx.
"""

from collections.abc import Mapping

from dlq.analyzers.frameworks import SUPERSEDED
from dlq.analyzers.rule import Rule, header

_LAST = header("x-last-death-reason")
_LAST_QUEUE = header("x-last-death-queue")
_LASTS_ENTRY = f"filter(deaths, d -> d.reason = {_LAST} AND d.queue <=> {_LAST_QUEUE})[0]"
_OLD_BROKER = "coalesce(broker_version RLIKE '^3\\\\.([0-9]|1[0-2])\\\\.', false)"


def _named_death(which: str) -> str:
    """The death that x-last-death-* or x-first-death-* names, as an entry of `deaths`."""
    known = ", ".join(
        f"'{part}', {header(f'x-{which}-death-{part}')}" for part in ("reason", "queue", "exchange")
    )
    return (
        f"named_struct({known}, "
        "'routing_keys', CAST(array() AS array<string>), 'count', CAST(NULL AS bigint), "
        "'time', CAST(NULL AS timestamp), 'original_expiration', CAST(NULL AS string))"
    )


DERIVED: Mapping[str, str] = {
    # x-last-death-* exists since 3.13; an older broker leaves what a newer one wrote. Where the
    # history has no such entry, the history is the newer of the two.
    "last_death": (
        f"CASE WHEN size(deaths) > 0 AND {_LAST} IS NOT NULL AND NOT {_OLD_BROKER} "
        f"THEN coalesce({_LASTS_ENTRY}, deaths[0]) WHEN size(deaths) > 0 THEN deaths[0] "
        f"WHEN {_LAST} IS NOT NULL THEN {_named_death('last')} "
        f"WHEN {header('x-first-death-reason')} IS NOT NULL THEN {_named_death('first')} END"
    ),
    "first_reason": f"coalesce({header('x-first-death-reason')}, deaths[size(deaths) - 1].reason)",
    "rejected": "filter(deaths, d -> d.reason = 'rejected')[0]",
    "expired": "filter(deaths, d -> d.reason = 'expired')[0]",
    "limited": "filter(deaths, d -> d.reason = 'delivery_limit')[0]",
}

DEATH_TEXT: Mapping[str, str] = {
    "death_text": (
        "concat(last_death.reason, ' from ', coalesce(last_death.queue, 'a queue without name'), "
        "coalesce(concat(', ', last_death.count, ' x'), ''), coalesce(concat(', first at ', "
        "date_format(last_death.time, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")), ''))"
    ),
}
"""The last death in words, for evidence."""

_LOOP = (
    "last_death.reason IN ('rejected', 'expired') AND expired IS NOT NULL AND "
    "((rejected IS NOT NULL AND (first_reason = 'rejected' OR rejected.count > 1)) OR expired.count > 1)"
)
_COUNT = "CAST(last_death.count AS int)"


def _died(name: str, words: str, when: str, cause: str, mechanism: str, **fields: str) -> Rule:
    return Rule(
        name,
        words,
        when,
        cause,
        mechanism,
        {"evidence": "death_text", "origin": "last_death.queue", **fields},
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "parked-by-hand",
        "published to the dead-letter queue itself; the queue of its last death does not dead-letter there",
        "parked",
        "unknown",
        "none",
        {
            "evidence": "concat('published to this queue itself; an earlier hop was: ', death_text)",
            "stale_evidence": "true",
        },
    ),
    _died(
        "retry-loop",
        "x-death has rejected and expired entries, or expired more than once: a retry loop over a TTL queue",
        _LOOP,
        "poison_ack",
        "retry_loop",
        evidence=(
            "concat('rejected ', coalesce(rejected.count, 0), ' x, waited in ', "
            "coalesce(expired.queue, '?'), ' ', coalesce(expired.count, 0), ' x')"
        ),
        attempts="CAST(rejected.count AS int)",
        origin="coalesce(rejected.queue, last_death.queue)",
    ),
    _died(
        "reject",
        "the last death is rejected (reject or nack without requeue; also AMQP 1.0, and a hand in the UI)",
        "last_death.reason = 'rejected'",
        "poison_ack",
        "reject",
        attempts=f"greatest({_COUNT}, retries + 1)",
        stale_evidence=SUPERSEDED,
    ),
    _died(
        "delivery-limit",
        "the last death is delivery_limit, or it expired later in a queue that it went on to",
        "last_death.reason = 'delivery_limit' "
        "OR (last_death.reason = 'expired' AND first_reason = 'delivery_limit')",
        "redelivery_exhausted",
        "delivery_limit",
        attempts="delivery_limit + 1",
        origin="coalesce(limited.queue, last_death.queue)",
        stale_evidence=SUPERSEDED,
    ),
    _died(
        "ttl",
        "the last death is expired (its own TTL or the queue's: the headers do not tell them apart)",
        "last_death.reason = 'expired'",
        "expired",
        "ttl",
        evidence="concat_ws(', original expiration ', death_text, last_death.original_expiration)",
    ),
    _died(
        "maxlen",
        "the last death is maxlen (drop-head kills the oldest; also reject-publish-dlx)",
        "last_death.reason = 'maxlen'",
        "overflow",
        "maxlen",
    ),
    Rule(
        "alternate-exchange",
        "no death, the exchange it was published to, and a queue that is fed by an alternate exchange",
        "unrouted",
        "unroutable",
        "alternate_exchange",
        {
            "evidence": "concat('exchange ', exchange, ', routing key ', coalesce(routing_key, ''))",
            "origin": "exchange",
            "origin_kind": "'exchange'",
        },
    ),
)
