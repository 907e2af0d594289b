"""The verdicts of the generated letters the way a good pandas user decides them: for the comparison only.

Every column of `verdicts`, by the rules that these letters meet: a function a letter where text has to
be read, whole columns at once for all the rest. Patterns and words of the product's tables are used where
they are, so that both sides read the same texts by the same expressions.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dlq.analyzers.groups.advice import Known, advise
from dlq.analyzers.groups.duplicates import Duplicate
from dlq.analyzers.groups.incidents import DEPENDENCY, SLOT, UNREMARKABLE
from dlq.analyzers.rules.exceptions import FAMILIES
from dlq.archive.analyses import VERDICTS

READ = ["headers", "properties", "deaths", "dead_letter_queue", "routing_key"]
KEPT = ["record_id", "source", "broker", "message_id", "key", "body_sha256", "body_size", "dead_at",
        "captured_at"]  # fmt: skip
CLASSIFIED = ["cause", "mechanism", "rule", "evidence", "attempts", "origin", "exception_class",
          "exception_message", "exception_family", "fingerprint", "laps"]  # fmt: skip
_HEAD = re.compile(r"([A-Za-z_$][\w$.+/]*)(?:: (.*))?", re.DOTALL)
_FRAME = re.compile(
    r"\n\s+at (?!java\.|org\.springframework\.|org\.postgresql\.|com\.fasterxml\.)([\w.$]+)\("
)
_VARIABLE = re.compile(r"\"[^\"]*\"|'[^']*'|\d[\d.,:TZ+-]*")
_PLATFORM = re.compile(r"(?:java|javax|jakarta|System|builtins)\.|[^.]*$")
_LAST = {"expired": ("expired", "ttl", "ttl"), "maxlen": ("overflow", "maxlen", "maxlen"),
         "rejected": ("poison_ack", "reject", "reject"),
         "delivery_limit": ("redelivery_exhausted", "delivery_limit", "delivery-limit")}  # fmt: skip
_TRANSIENT = ["timeout", "connection", "throttled"]


def _said(named: Mapping[str, str], *names: str) -> str | None:
    return next((f"{name}: {named[name]}" for name in names if name in named), None)


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _parked(named: dict[str, str], queue: str, key: str) -> tuple[Any, ...] | None:
    """rule, evidence, attempts, origin, exception class, message, stack trace of a framework's letter."""
    message, trace = named.get("x-exception-message"), named.get("x-exception-stacktrace")
    if message or trace:
        evidence = _said(named, "x-exception-message", "x-exception-stacktrace")
        return (
            "spring-cloud-stream",
            evidence,
            None,
            key if queue == f"{key}.dlq" else None,
            None,
            message,
            trace,
        )
    if "MT-Reason" in named:
        attempts = (_whole(named.get("MT-Fault-RetryCount")) + 1) * (
            _whole(named.get("MT-Redelivery-Count")) + 1
        )
        origin = named.get("MT-Fault-InputAddress", "").partition("?")[0].rpartition("/")[2] or None
        kind, message = named.get("MT-Fault-ExceptionType"), named.get("MT-Fault-Message")
        evidence = _said(named, "MT-Fault-Message", "MT-Fault-ExceptionType", "MT-Reason")
        return (
            "masstransit-fault",
            evidence,
            attempts,
            origin,
            kind,
            message,
            named.get("MT-Fault-StackTrace"),
        )
    if "NServiceBus.FailedQ" in named:
        start = "NServiceBus.ExceptionInfo"
        evidence = _said(named, f"{start}.Message", f"{start}.ExceptionType", "NServiceBus.FailedQ")
        kind, message, trace = (named.get(f"{start}.{n}") for n in ("ExceptionType", "Message", "StackTrace"))
        return (
            "nservicebus",
            evidence,
            None,
            named["NServiceBus.FailedQ"].partition("@")[0],
            kind,
            message,
            trace,
        )
    if "x-error" in named:
        attempts = _whole(named["x-retry-count"]) + 1 if "x-retry-count" in named else None
        origin = named.get("x-original-queue")
        return "hand-written-error", _said(named, "x-error"), attempts, origin, None, named["x-error"], None
    return None


@cache
def _family_of(name: str) -> str | None:
    """What a class's own name says; the same few classes come again and again."""
    return next((family for family, p in FAMILIES.items() if p.search(name.rpartition(".")[2].lower())), None)


def _family(name: str | None, message: str) -> str:
    found = (_family_of(name) if name else None) or next(
        (family for family, pattern in FAMILIES.items() if pattern.search(message[:300].lower())), None
    )
    return found or ("other" if name is None or _PLATFORM.match(name) else "business")


def _exception(name: str | None, message: str | None, trace: str | None) -> tuple[str | None, str, str]:
    """Class, message, and the place in the code or the message as a template."""
    text = trace or message or ""
    root = text.rsplit("Caused by: ", 1)[-1]
    found = _HEAD.fullmatch(root.split("\n\tat ", 1)[0])
    frame = _FRAME.search(root) or _FRAME.search(text)
    if found and found[1].endswith(("Exception", "Error")):
        name, message = found[1], found[2]
    message = (message or "")[:2000]
    return name, message, frame[1] if frame else _VARIABLE.sub("?", message[:300])


def _died(deaths: Any, named: Mapping[str, str]) -> tuple[Any, ...]:
    """cause, mechanism, rule, evidence, attempts, origin of what only its death history tells of."""
    if not len(deaths):
        return "unknown", "none", "unknown", None, None, None
    reasons = {death["reason"]: death for death in reversed(deaths)}
    rejected, expired, last = reasons.get("rejected"), reasons.get("expired"), deaths[0]
    if rejected and expired and rejected["count"] > 1:
        evidence = f"rejected {rejected['count']} x, waited in {expired['queue']} {expired['count']} x"
        return "poison_ack", "retry_loop", "retry-loop", evidence, rejected["count"], rejected["queue"]
    when = f"{last['time']:%Y-%m-%dT%H:%M:%SZ}"
    evidence = f"{last['reason']} from {last['queue']}, {last['count']} x, first at {when}"
    attempts = None
    if last["reason"] == "rejected":
        attempts = max(last["count"], _whole(named.get("x-retry-count")) + 1)
    return *_LAST[last["reason"]], evidence, attempts, last["queue"]


def judge(headers: Any, properties: Any, deaths: Any, queue: str, key: str) -> tuple[Any, ...]:
    """CLASSIFIED of one letter."""
    named, own = dict(headers), dict(properties)
    name = message = family = None
    parked = _parked(named, queue, key)
    if parked:
        rule, evidence, attempts, origin, *error = parked
        cause, mechanism = "application_error", "framework"
        name, message, place = _exception(*error)
        family = _family(name, message)
        failure = f"{name or place}|{place}"
    else:
        cause, mechanism, rule, evidence, attempts, origin = _died(deaths, named)
        failure = f"{mechanism}|{origin or queue}"
    print_ = hashlib.sha256(f"2|{cause}|{failure}".encode()).hexdigest()[:16]
    laps = _whole(named.get("dlq_replay_lap") or own.get("dlq_replay_lap"))
    return (
        cause,
        mechanism,
        rule,
        evidence and evidence[:500],
        attempts,
        origin,
        name,
        message,
        family,
        print_,
        laps,
    )


def _classified(file: str) -> pd.DataFrame:
    frame = pq.read_table(file, columns=READ + KEPT).to_pandas()
    rows = [judge(*row) for row in zip(*(frame[name] for name in READ), strict=True)]
    return pd.DataFrame(rows, columns=CLASSIFIED).join(frame[KEPT])


def _with_duplicates(letters: pd.DataFrame) -> pd.DataFrame:
    """Letters that share a sign are few: they are found first, and only they are grouped."""
    letters["at"] = letters.dead_at.fillna(letters.captured_at)
    place = ["broker", "origin", "laps"]
    named = letters[letters.message_id != ""]
    signs = {
        "same_message_id": (named, ["message_id", *place]),
        "same_key": (letters[(letters.key != "") & (letters.key != letters.message_id)], ["key", *place]),
        "same_body": (letters[letters.body_size > 0], ["body_sha256", *place]),
        "several_groups": (named[named.origin.notna()], ["message_id", "broker"]),
    }
    first = {}
    for kind, (among, columns) in signs.items():
        same = among[among.duplicated(columns, keep=False)].sort_values(["at", "record_id"])
        groups = same.groupby(columns, dropna=False)
        if kind == "several_groups":
            same = same[groups.origin.transform("nunique") > 1]
            groups = same.groupby(columns)
        first[kind] = groups.record_id.transform("first")
        if kind == "same_message_id":
            copies = same.body_sha256 == groups.body_sha256.transform("first")
    firsts = pd.DataFrame(first).reindex(letters.index)
    letters["duplicate_kind"] = np.select([firsts[kind].notna() for kind in signs], list(signs), None)
    letters["duplicate_group"] = firsts.same_key.fillna(firsts.same_message_id).fillna(firsts.same_body)
    letters["later"] = letters.duplicate_group.notna() & (letters.duplicate_group != letters.record_id)
    repeats = firsts.same_message_id.notna() & (firsts.same_message_id != letters.record_id)
    return letters.assign(
        repeats_id=repeats, exact_copy=repeats & copies.reindex(letters.index, fill_value=False)
    )


def _twin(kind: str | None = None, **repeats: bool) -> Known:
    return Known("poison_ack", 3, duplicate=Duplicate("g", kind, first_of_group=False, **repeats))


def _failed(family: str) -> Known:
    return Known("application_error", 3, exception_family=family)


def _with_advice(letters: pd.DataFrame) -> pd.DataFrame:
    cause, kind, later = letters.cause, letters.duplicate_kind, letters.later
    family = letters.exception_family.where(cause.isin(["application_error", "redelivery_exhausted"]))
    conditions = (
        (Known(None, 3, laps=3), letters.laps >= 3),
        (_twin(exact_copy=True), letters.exact_copy),
        (_twin(repeats_id=True), letters.repeats_id),
        (_twin("same_key"), (kind == "same_key") & later),
        (_twin("same_body"), (kind == "same_body") & later & (letters.message_id.fillna("") == "")),
        *((Known(name, 3), cause == name) for name in ("unknown", "expired", "overflow")),
        (_failed("timeout"), family.isin(_TRANSIENT)),
        *((_failed(name), family == name) for name in ("duplicate", "database", "auth")),
        (_failed("serialization"), family.isin(["serialization", "validation"])),
        *((_failed(name), family == name) for name in ("not_found", "bug")),
        (
            Known("application_error", 3, also_possible=("poison_ack", "moved")),
            letters.rule == "hand-written-error",
        ),
        *((Known(name, 3), cause == name) for name in ("application_error", "redelivery_exhausted")),
        (Known("poison_ack", 3, mechanism="retry_loop"), letters.mechanism == "retry_loop"),
        (Known("poison_ack", 3), cause == "poison_ack"),
    )
    lines = [advise(known) for known, _ in conditions]
    number = np.select([holds for _, holds in conditions], range(len(lines)))
    letters["advice"] = np.array([advice for advice, _ in lines], object)[number]
    letters["advice_reason"] = np.array([reason for _, reason in lines], object)[number]
    return letters


def _with_incidents(letters: pd.DataFrame) -> pd.DataFrame:
    """Bursts among slots of five minutes: these letters come without a gap, after days without any."""
    kind = letters.exception_family.fillna(letters.cause)
    letters["kind"] = kind.mask(letters.exception_family.isin(DEPENDENCY), "dependency")
    letters["slot"] = letters["at"].astype("datetime64[s, UTC]").astype("int64") // SLOT
    failure = ["kind", "fingerprint"]
    counted = letters.groupby([*failure, "slot"]).size().rename("letters").reset_index()
    history = 2 * 86_400 // SLOT
    usual = counted.letters.groupby([counted[name] for name in failure]).transform("sum") / history
    capped = np.minimum(counted.letters, np.maximum(UNREMARKABLE + usual + 6 * np.sqrt(usual), 4 * usual))
    groups = [counted[name] for name in failure]
    usual = capped.groupby(groups).transform("sum") / history
    spread = (capped**2).groupby(groups).transform("sum") / history
    raised = counted.letters > usual + 3 * np.sqrt(usual)
    in_run = counted.letters.where(raised, 0).groupby(groups).transform("sum")
    lasts = counted.slot.groupby(groups).transform("max") - counted.slot.groupby(groups).transform("min") + 1
    highest = counted.letters.groupby(groups).transform("max")
    far = (highest > np.maximum(UNREMARKABLE + usual + 6 * np.sqrt(spread), 4 * usual)) | (
        in_run > np.maximum(UNREMARKABLE + usual * lasts + 6 * np.sqrt(spread * lasts), 4 * usual * lasts)
    )
    bursts = counted[raised & far]
    begin = pd.to_datetime(bursts.groupby("kind").slot.transform("min") * SLOT, unit="s")
    named = bursts.assign(incident_id=begin.dt.strftime("%Y%m%d-%H%M-") + bursts.kind)
    return letters.merge(named[[*failure, "slot", "incident_id"]], "left", [*failure, "slot"])


def verdicts(files: list[str], into: str) -> Mapping[str, int]:
    """All verdicts of these segments, written to one Parquet file; the counts by cause."""
    letters = pd.concat(map(_classified, files), ignore_index=True)
    done = _with_incidents(_with_advice(_with_duplicates(letters)))
    done["origin_kind"] = np.where(done.origin.notna(), "queue", None)
    done = done.assign(stale_evidence=False, fingerprint_version=2, attempts=done.attempts.astype("Int32"))
    # A column that is not there would be one of numbers, which become no lists.
    every = done.reindex(columns=VERDICTS.names).assign(also_possible=None)
    table = pa.Table.from_pandas(every, VERDICTS, preserve_index=False)
    pq.write_table(table, into, compression="zstd")
    return {str(cause): int(count) for cause, count in done.cause.value_counts().items()}
