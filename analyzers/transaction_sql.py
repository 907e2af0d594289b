"""What the records of a RocketMQ transaction say together: Spark SQL, in the order in which it is asked."""

from collections.abc import Mapping

from dlq.analyzers.rules_rocketmq import DEFAULT_RESERVED_HOURS

_AT = "date_format({}, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")".format
_NEWEST = "max_by({}, struct(dead_at, rocket.offset, record_id)) FILTER (WHERE role = '{}')".format
_RESERVED = "reserved_hours * 3.6e9"


def _within(later: str, earlier: str, micros: str) -> str:
    return f"coalesce(unix_micros({later}) - unix_micros({earlier}) < {micros}, false)"


GATHERED: Mapping[str, str] = {
    "topic": "max(origin)",
    "producer_group": "max(rocket.producer_group)",
    "checks": "max(coalesce(rocket.checks, 0))",
    "immunity": "max(rocket.immunity)",
    "copies": "count_if(role = 'half')",
    "halves": "collect_set(rocket.position) FILTER (WHERE role = 'half')",
    "prepared": "collect_set(rocket.prepared) FILTER (WHERE role = 'real')",
    "record_ids": "sort_array(collect_list(record_id))",
    "real_record_id": "min(record_id) FILTER (WHERE role = 'real')",
    "newest_half": _NEWEST("record_id", "half"),
    "newest_half_at": "max(dead_at) FILTER (WHERE role = 'half')",
    "fresh_half_at": "max(dead_at) FILTER (WHERE role = 'half' AND coalesce(rocket.checks, 0) = 0)",
    "newest_discard": _NEWEST("record_id", "discarded"),
    "discarded_at": "max(dead_at) FILTER (WHERE role = 'discarded')",
    "discard_checks": _NEWEST("coalesce(rocket.checks, 0)", "discarded"),
    "has_key": "coalesce(bool_or(message_id <> ''), false)",
    "sent_at": "min(published_at)",
    "ended_at": "min(ended_at)",
    "end_seen_at": "max(end_seen_at)",
    "answered": "coalesce(bool_or(ended_at IS NOT NULL AND rocket.checks > 0), false)",
    "first_seen": "min(dead_at)",
    "last_seen": "max(greatest(dead_at, ended_at))",
    "last_captured": "max(captured_at)",
}
"""Aggregates over the records of one transaction (columns of `transactions.members`)."""

STEPS: Mapping[str, str] = {
    "discarded": "newest_discard IS NOT NULL",
    "reserved_hours": f"coalesce(reserved_hours, {DEFAULT_RESERVED_HOURS})",
    "indexed": "coalesce(indexed, true)",
    # Without a pull's word (an imported file) nothing says how long it was watched.
    "looked_at": "CASE WHEN looked_at IS NOT NULL THEN greatest(last_captured, looked_at) END",
    "skipped": f"discarded AND NOT coalesce({_within('discarded_at', 'sent_at', _RESERVED)}, true) "
    "AND discarded_at IS NOT NULL AND sent_at IS NOT NULL",
    # After a resumed check a fresh copy lies in the half topic, and everything is open again.
    "resumed": "coalesce(fresh_half_at > discarded_at, false)",
    # The real message is written after the half message: while that is retained, so is the other. Only
    # by its unique key could a pull look for it; brokers up to 4.9 add none.
    "retained": f"indexed AND has_key AND {_within('end_seen_at', 'newest_half_at', _RESERVED)}",
    "can_change": _within("looked_at", "discarded_at", "settles_after_ms * 1000"),
    "is_lost": "looked_at IS NOT NULL AND newest_half_at IS NOT NULL "
    f"AND NOT {_within('looked_at', 'newest_half_at', _RESERVED)}",
    # A producer that got no answer sends the half message to another node too, under the same key.
    "committed_on": """CASE WHEN real_record_id IS NULL THEN
        min(CASE WHEN real_record_id IS NOT NULL THEN broker_node END)
            OVER (PARTITION BY source, broker, unique_key) END""",
    "state": """CASE WHEN real_record_id IS NOT NULL OR committed_on IS NOT NULL THEN 'committed'
        WHEN ended_at IS NOT NULL AND retained THEN 'rolled_back'
        WHEN ended_at IS NOT NULL THEN 'ended'
        WHEN discarded AND (resumed OR can_change) THEN 'pending'
        WHEN skipped THEN 'check_skipped'
        WHEN discarded THEN 'check_max_exceeded'
        WHEN is_lost THEN 'ended'
        ELSE 'pending' END""",
    "letter": """CASE WHEN state = 'pending' AND (NOT discarded OR resumed) THEN newest_half
        WHEN discarded THEN newest_discard WHEN state = 'ended' THEN newest_half END""",
    # Every copy that an immune message gets counts as a check, though nobody was asked.
    "check_reached_producer": """CASE WHEN answered THEN 'yes' WHEN checks = 0 THEN 'no'
        WHEN immunity * 1000 > checks * check_interval_ms THEN 'no' ELSE 'unknown' END""",
    "evidence": f"""concat_ws('; ',
        concat(copies, ' half copies, ', checks, ' checks counted'),
        concat('ended at ', {_AT("ended_at")}),
        CASE WHEN real_record_id IS NOT NULL THEN concat('the real message is there',
            CASE WHEN size(prepared) > 1 THEN concat(', written ', size(prepared), ' times') ELSE '' END,
            CASE WHEN copies > 0 AND NOT arrays_overlap(prepared, halves)
                THEN ', of a copy that was not captured' ELSE '' END)
            WHEN committed_on IS NOT NULL THEN concat('its twin on ', committed_on, ' was committed: ',
                'the real message is there')
            WHEN state = 'rolled_back' THEN 'no real message, though it would still be retained' END,
        concat('discarded at ', {_AT("discarded_at")}, ' after ', discard_checks, ' checks'),
        CASE WHEN skipped THEN concat('by then older than the retention of ', reserved_hours, ' h') END,
        CASE WHEN resumed THEN 'its check was resumed since' END,
        CASE WHEN state = 'pending' AND discarded AND can_change
            THEN 'a late outcome is still possible: pull again' END,
        CASE WHEN state <> 'ended' THEN NULL WHEN ended_at IS NULL
            THEN 'its outcome was deleted before it was seen'
            WHEN NOT indexed THEN 'its broker keeps no index to look its real message up by'
            WHEN NOT has_key THEN 'it has no unique key to look its real message up by' END)""",
}
"""Columns that follow from GATHERED and the facts of the node, each from those above it."""

LETTER: Mapping[str, str] = {
    "of_transaction": "state",
    "transaction_evidence": "evidence",
    "settled_cause": """CASE WHEN NOT record_id <=> letter THEN NULL
        WHEN state = 'pending' THEN 'transaction_pending' WHEN NOT discarded THEN 'unknown'
        WHEN skipped THEN 'check_skipped' ELSE 'check_max_exceeded' END""",
    "settled_mechanism": """CASE WHEN NOT record_id <=> letter THEN 'none'
        WHEN state = 'pending' OR NOT discarded THEN 'none' WHEN skipped THEN 'check_age' ELSE 'check' END""",
    "stands_for_it": "record_id <=> letter",
}
"""What a transaction makes of one of its records."""

REASON = """CASE WHEN advice = 'check_first' AND user_rule IS NULL
        AND cause IN ('check_max_exceeded', 'check_skipped')
    THEN concat('it was never delivered, as far as the broker knows: look ',
        coalesce(nullif(get_json_object(rocket, '$.keys'), ''), message_id, 'its body'),
        ' up in the business database. If it was committed there, publish it (--to origin forces the ',
        'commit); if its producer is up and can tell, resume the check (--to resume) and let it decide')
    ELSE advice_reason END"""
"""Where to look a discarded transaction up, and what the two ways back mean."""
