"""Incidents: letters that died in a burst, for the same kind of reason, wherever they lay.

1. Letters are counted by failure (its fingerprint) in slots of five minutes. What is usual for a failure is
   its average over its history; slots that stand far out count only up to where that begins.
2. Slots above the usual, less than half an hour apart, are a run. A run, or one slot of it, that stands
   far out (half a dozen letters, six standard deviations, four times the usual) is a burst.
3. What rose a little in many failures of one kind at once, and stands far out together, is a burst too.
4. Bursts of one kind, less than half an hour apart, are one incident, across sources and brokers.

A letter whose time of death is unknown counts where it was published. Suppressed duplicates of a known
connection are left to `bursts`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from dlq.analyzers.reading import spark_url
from dlq.archive.analyses import INCIDENTS
from dlq.archive.manifests import Manifest
from dlq.archive.store import Store
from dlq.core import clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOT = 300
"""Seconds."""
GAP = 1_800 // SLOT
"""Slots without a burst that end an incident."""
UNREMARKABLE = 4
"""So many letters at once never stand out by themselves."""
_DAY = 86_400 // SLOT
_QUIET, _WEEK, _RECENT = 2 * _DAY, 7 * _DAY, 28 * _DAY
"""Before its first letter an archive is taken for quiet, up to two days; a failure, up to a week."""

DEPENDENCY = ("timeout", "connection", "database", "throttled")
"""Families of exceptions that come together when something that many services need is down."""
_FAMILIES = ", ".join(f"'{name}'" for name in DEPENDENCY)
_KEYS: Mapping[str, str] = {
    "kind": (
        f"CASE WHEN exception_family IN ({_FAMILIES}) THEN 'dependency' "
        "ELSE coalesce(exception_family, cause) END"
    ),
    "slot": f"unix_seconds(coalesce(dead_at, published_at)) DIV {SLOT}",
}
_COUNTED = (
    "cause IS NOT NULL AND coalesce(dead_at, published_at) IS NOT NULL "
    "AND NOT (cause = 'suppressed_duplicate' AND connection_id IS NOT NULL)"
)

_FAILURE, _KIND = "PARTITION BY kind, fingerprint", "PARTITION BY kind"
_FAILURE_IN_TIME, _KIND_IN_TIME = f"{_FAILURE} ORDER BY slot", f"{_KIND} ORDER BY slot, fingerprint"
_EARLIER = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_SO_FAR = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
_FROM_HERE = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"


def _bound(usual: str, spread: str) -> str:
    """More letters than this stand far out. `spread` is a variance: letters often come in clumps."""
    return f"greatest({UNREMARKABLE} + {usual} + 6 * sqrt({spread}), 4 * {usual})"


def _apart(marked: str, window: str) -> str:
    """1 where the last row that is marked lies too far back, else 0."""
    last = f"last(IF({marked}, slot, NULL), true) OVER ({window} {_EARLIER})"
    return f"IF({marked} AND slot - {last} > {GAP}, 1, 0)"


def _steps(span: int) -> Iterator[dict[str, str]]:
    """Columns in steps over (kind, fingerprint, slot, letters); a step reads those before it.

    `span` is what the archive covers, in slots. Every window is by kind, so that one shuffle does for all.
    """
    run = f"{_FAILURE}, run"
    yield {
        "history": (
            f"greatest({_QUIET}, {min(span, _WEEK)}, "
            f"max(slot) OVER ({_FAILURE}) - min(slot) OVER ({_FAILURE}) + 1)"
        ),
        "before": f"lag(slot) OVER ({_FAILURE_IN_TIME})",
        "slots_of": f"count(*) OVER ({_FAILURE})",
    }
    yield {"usual": f"sum(letters) OVER ({_FAILURE}) / history"}
    yield {"capped": f"least(letters, {_bound('usual', 'usual')})"}
    yield {
        "usual": f"sum(capped) OVER ({_FAILURE}) / history",
        "spread": f"sum(capped * capped) OVER ({_FAILURE}) / history",
    }
    yield {"raised": "letters > usual + 3 * sqrt(usual)"}
    yield {"apart": _apart("raised", _FAILURE_IN_TIME), "raised_at": "IF(raised, slot, NULL)"}
    yield {"run": f"sum(apart) OVER ({_FAILURE_IN_TIME} {_SO_FAR})"}
    yield {
        "highest": f"max(letters) OVER ({run})",
        "in_run": f"sum(IF(raised, letters, 0)) OVER ({run})",
        "lasts": f"max(raised_at) OVER ({run}) - min(raised_at) OVER ({run}) + 1",
    }
    yield {
        "burst": (
            f"raised AND (highest > {_bound('usual', 'spread')} "
            f"OR in_run > {_bound('usual * lasts', 'spread * lasts')})"
        )
    }
    yield {"rest": "IF(raised AND NOT burst, letters, 0)"}
    yield {
        "together": f"sum(rest) OVER ({_KIND}, slot)",
        "usual": f"sum(usual / slots_of) OVER ({_KIND})",
        "spread": f"sum(spread / slots_of) OVER ({_KIND})",
    }
    yield {"burst": f"burst OR (rest > 0 AND together > {_bound('usual', 'spread')})"}
    yield {"apart": _apart("burst", _KIND_IN_TIME)}
    yield {"number": f"sum(apart) OVER ({_KIND_IN_TIME} {_SO_FAR})"}
    yield {"begin": f"min(IF(burst, slot, NULL)) OVER ({_KIND}, number)"}
    began = f"date_format(timestamp_seconds(begin * {SLOT}), 'yyyyMMdd-HHmm')"
    yield {"incident_id": f"IF(burst, concat({began}, '-', kind), NULL)"}
    # Letters of a failure between two of its bursts in one incident belong to it as well.
    earlier = f"last(incident_id, true) OVER ({_FAILURE_IN_TIME} {_SO_FAR})"
    later = f"first(incident_id, true) OVER ({_FAILURE_IN_TIME} {_FROM_HERE})"
    yield {"incident_id": f"IF({earlier} = {later}, {earlier}, NULL)"}


def _with_keys(letters: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return letters.withColumns({name: F.expr(text) for name, text in _KEYS.items()})


def slots(judged: "DataFrame") -> "DataFrame":
    """How many letters of each failure died in each slot of five minutes, with what tells them apart."""
    from pyspark.sql import functions as F

    at = F.coalesce("dead_at", "published_at")
    return (
        _with_keys(judged.filter(_COUNTED))
        .groupBy("kind", "fingerprint", "slot")
        .agg(
            F.count("*").alias("letters"),
            F.max(at).alias("last_at"),
            F.min(F.struct(at.alias("at"), "record_id")).alias("first"),
            F.collect_set("source").alias("sources"),
            F.collect_set("cause").alias("causes"),
        )
    )


def find(counted: "DataFrame") -> "DataFrame":
    """The slots that are part of an incident: `incident_id`, and `before`, the failure's slot before."""
    from pyspark.sql import functions as F

    span = counted.agg(F.max("slot") - F.min("slot") + 1).collect()[0][0]
    found = counted
    for step in _steps(span or 0):
        found = found.withColumns({name: F.expr(text) for name, text in step.items()})
    return found.filter("incident_id IS NOT NULL").select(*counted.columns, "before", "incident_id")


def mark(verdicts: "DataFrame", found: "DataFrame") -> "DataFrame":
    """Verdicts (stage 1 columns among them) with the incident of their slot; one they have already stays."""
    from pyspark.sql import functions as F

    slots_of = found.select("kind", "fingerprint", "slot", F.col("incident_id").alias("of_slot"))
    keyed = _with_keys(verdicts).withColumn("slot", F.expr(f"IF({_COUNTED}, slot, NULL)"))
    joined = keyed.join(slots_of, ["kind", "fingerprint", "slot"], "left")
    return joined.withColumn("incident_id", F.coalesce("incident_id", "of_slot")).drop(
        "kind", "slot", "of_slot"
    )


def table(found: "DataFrame", looked_at: int) -> "DataFrame":
    """One row an incident. `looked_at`: the time of the last pull, in microseconds.

    It goes on when its last letter died less than half an hour before that. It is new when its most
    frequent failure had no letter in the four weeks before it.
    """
    from pyspark.sql import functions as F

    known = found.withColumns(
        {
            "together": F.expr("sum(letters) OVER (PARTITION BY incident_id, slot)"),
            "of_failure": F.expr("sum(letters) OVER (PARTITION BY incident_id, fingerprint)"),
            "new": F.expr(f"before IS NULL OR slot - before > {_RECENT}"),
        }
    )
    peak = "max_by(slot, struct(together, -slot))"
    ended = looked_at // 1_000_000 - GAP * SLOT
    grouped = known.groupBy("incident_id").agg(
        F.expr("min(first.at) AS start"),
        F.expr(f"greatest(min(first.at), timestamp_seconds({peak} * {SLOT})) AS peak"),
        F.expr("max(last_at) AS end"),
        F.expr("sum(letters) AS size"),
        F.expr("sort_array(array_distinct(flatten(collect_list(sources)))) AS sources"),
        F.expr("sort_array(array_distinct(flatten(collect_list(causes)))) AS causes"),
        F.expr("max_by(fingerprint, struct(of_failure, fingerprint)) AS fingerprint"),
        F.expr("min(first).record_id AS first_record_id"),
        F.expr(f"max(last_at) >= timestamp_seconds({ended}) AS ongoing"),
        F.expr("max_by(new, struct(of_failure, fingerprint, -slot)) AS new"),
    )
    return grouped.select(*INCIDENTS.names)


def write(
    store: Store, segments: Sequence[Manifest], judged: "DataFrame", verdicts: "DataFrame", folder: str
) -> "DataFrame":
    """Write the incidents beside those that are in the folder; the verdicts with theirs."""
    if sum(segment.rows for segment in segments) <= UNREMARKABLE:
        return verdicts
    counted = slots(judged).persist()
    found = find(counted).persist()
    if not found.count():  # all of it is computed, so that the join knows how small it is
        return verdicts
    table(found, last_look(store, segments)).write.mode("append").parquet(spark_url(store.url(folder)))
    return mark(verdicts, found)


def last_look(store: Store, segments: Iterable[Manifest]) -> int:
    """When the newest pull began, or the newest segment was made, in microseconds."""
    made = max((clock.from_iso(m.created_at) or 0 for m in segments), default=0)
    pulls = (name.rpartition("/")[2].partition("-")[0] for name in store.list("topology/"))
    return max([made, *(at for at in map(_moment, pulls) if at)])


def _moment(text: str) -> int | None:
    try:
        return clock.to_micros(datetime.strptime(f"{text}+0000", "%Y%m%dT%H%M%S%z"))
    except ValueError:
        return None
