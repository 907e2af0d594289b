"""The verdicts of the generated letters, written the way one writes them in pandas: for the comparison only."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

COLUMNS = ["record_id", "dead_letter_queue", "message_id", "body_sha256", "dead_at", "headers", "deaths"]
_HEAD = re.compile(r"([A-Za-z_$][\w$.+/]*)(?:: (.*))?", re.DOTALL)
_FRAME = re.compile(
    r"\n\s+at (?!java\.|org\.springframework\.|org\.postgresql\.|com\.fasterxml\.)([\w.$]+)\("
)
_VARIABLE = re.compile(r"\"[^\"]*\"|'[^']*'|\d[\d.,:TZ+-]*")
_LAST = {"expired": ("expired", "ttl"), "maxlen": ("overflow", "maxlen"), "rejected": ("poison_ack", "reject"),
         "delivery_limit": ("redelivery_exhausted", "delivery_limit")}  # fmt: skip
_PARKED = (
    ("x-exception-message", "x-exception-stacktrace", ""),
    ("NServiceBus.FailedQ", "NServiceBus.ExceptionInfo.Message", "NServiceBus.ExceptionInfo.ExceptionType"),
    ("MT-Reason", "MT-Fault-Message", "MT-Fault-ExceptionType"),
    ("x-error", "x-error", ""),
)


def _exception(text: str, name: str) -> tuple[str | None, str | None, str]:
    root = text.rsplit("Caused by: ", 1)[-1]
    found = _HEAD.fullmatch(root.split("\n\tat ", 1)[0])
    frame = _FRAME.search(root) or _FRAME.search(text)
    if found and found[1].endswith(("Exception", "Error")):
        name, text = found[1], found[2] or ""
    place = frame[1] if frame else _VARIABLE.sub("?", text[:300])
    return name or None, text, place


def judge(headers: list[tuple[str, str]], deaths: Any, queue: str) -> tuple[Any, ...]:
    """cause, mechanism, attempts, exception class, message, fingerprint of one letter."""
    named = dict(headers)
    reasons = {death["reason"]: death for death in reversed(deaths)}
    name = message = None
    attempts, place = None, queue
    for sign, text, kind in _PARKED:
        if sign in named:
            cause, mechanism = "application_error", "framework"
            name, message, place = _exception(named.get(text, ""), named.get(kind, ""))
            break
    else:
        cause, mechanism = (
            _LAST.get(deaths[0]["reason"], ("unknown", "none")) if len(deaths) else ("unknown", "none")
        )
        if "rejected" in reasons:
            attempts = reasons["rejected"]["count"]
            cause, mechanism = "poison_ack", "retry_loop" if "expired" in reasons else "reject"
    print_ = hashlib.sha256(f"1|{cause}|{name}|{place}".encode()).hexdigest()[:16]
    return cause, mechanism, attempts, name, message, print_


def verdicts(files: list[str]) -> Mapping[str, int]:
    """All verdicts as one frame, duplicates marked; the counts by cause."""
    frame = pd.concat([pq.read_table(file, columns=COLUMNS).to_pandas() for file in files], ignore_index=True)
    rows = [judge(*row) for row in zip(frame.headers, frame.deaths, frame.dead_letter_queue, strict=True)]
    judged = pd.DataFrame(rows, columns=["cause", "mechanism", "attempts", "class", "message", "fingerprint"])
    judged["record_id"] = frame.record_id
    for kind in ("message_id", "body_sha256"):
        judged[f"first_of_{kind}"] = frame.sort_values("dead_at").groupby(kind).record_id.transform("first")
        judged[f"size_of_{kind}"] = frame.groupby(kind).record_id.transform("size")
    return {str(cause): int(count) for cause, count in judged.cause.value_counts().items()}
