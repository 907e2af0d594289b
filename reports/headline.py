"""The answer first: how many, why, since when, and what to do, in a few sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

from dlq.core import clock
from dlq.core.causes import cause_in_words
from dlq.core.documents import Document
from dlq.core.text import list_names, shorten
from dlq.core.values.units import human_seconds

_SAID = 120
_SENTENCES: Mapping[str, str] = {
    "replay": "may go back",
    "fix_first": "may go back once the cause is fixed",
    "check_first": "need a look first",
    "never": "must not go back",
    "hold": "have to wait, their outcome can still change",
    "no_verdict": "have no verdict yet",
}


def sentences(document: Document) -> list[str]:
    """Return what one would say aloud to whoever asks."""
    selection = document.get("selection")
    if not document["letters"]:
        return [f"No letters with {selection}." if selection else "The archive holds no letters."]
    return [
        *([f"Only letters with {selection}."] if selection else []),
        *_incidents(document),
        _how_many(document),
        *_causes(document["causes"]),
        tell_what_to_do(document),
        *_doubts(document["counts"]),
        *_losses(document.get("losses", ())),
        *_still_queued(document),
    ]


def basis(document: Document) -> str:
    """Return what the report rests on."""
    made = f"{minutes(document['created_at'])} UTC"
    name = document["analysis"]
    return f"analysis {name} of {made}" if name else f"what was captured until {made}, before any analysis"


def _losses(losses: Sequence[Document]) -> list[str]:
    """Return what nobody captured before it was gone."""
    if not losses:
        return []
    known = sum(row["letters"] or 0 for row in losses)
    more = " or more" if any(row["letters"] is None for row in losses) else ""
    where = list_names(sorted({row["place"] for row in losses}))
    return [f"{_plural(known, 'letter')}{more} lost before any pull could take them: {where}."]


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def minutes(moment: str | None) -> str:
    """Return a time for people: 2026-11-02 03:12."""
    return moment[:16].replace("T", " ") if moment else "unknown"


def failure(row: Document) -> tuple[str, str]:
    """Return what a fingerprint stands for: exception and message, or the cause and where it happened."""
    if row["exception_class"]:
        outer = next(iter((row.get("outer_exception") or "").splitlines()), "")
        parts = (row["exception_message"], outer and f"(in {outer})")
        return str(row["exception_class"]), " ".join(str(part) for part in parts if part)
    cause = cause_in_words(str(row["cause"]), row["broker_kinds"], row.get("proof"))
    return cause, f"in {row['origin']}" if row["origin"] else ""


def _incidents(document: Document) -> list[str]:
    """Return the incident to look at first, and how many more there are."""
    if not document["incidents"]:
        return []
    top, others = document["incidents"][0], document["counts"]["incidents"] - 1
    ongoing = document["counts"]["ongoing"] - bool(top["ongoing"])
    going_on = f", {ongoing:,} going on at the last pull" if ongoing else ""
    more = [f"{_plural(others, 'more incident')}{going_on}."] if others > 0 else []
    return [_incident(top, document["created_at"]), *more]


def _incident(row: Document, today: str) -> str:
    """Say `pay-gw did not answer from 16:13 to 16:53 UTC: 1,230 letters, orders and payments; over.`"""
    name, message = failure(row) if row["cause"] else (list_names(row["causes"] or []), "")
    if row["exception_class"]:
        said = next(iter(message.splitlines()), "").strip(" .:") or name.rpartition(".")[2]
    else:
        said = f"{name} {message}".strip()
    waits = "" if row["waiting"] else "; none waits"
    where = list_names(row["services"])
    who = "" if said.endswith(f" in {where}") else f", {where}"
    letters = _plural(row["size"], "letter")
    return f"{shorten(said, _SAID)}{_period(row, today)}: {letters}{who}{_state(row)}{waits}."


def _state(row: Document) -> str:
    if row["ongoing"] and row["start"] and row["end"]:
        return f"; going on at {_brief(row['end'], row['start'])} UTC"
    return "; over" if row["dated"] else ""


def _period(row: Document, today: str) -> str:
    """Say when a failure was, in short dates; nothing where only times of publishing are known."""
    if not row["dated"]:
        return ", time unknown"
    start, end = _brief(row["start"], today), _brief(row["end"], row["start"])
    return f" since {start} UTC" if row["ongoing"] else f" from {start} to {end} UTC"


def _brief(moment: str, than: str) -> str:
    """Return a time for people without what it shares with another: 03:12, or 11-02 03:12."""
    same_year, same_day = moment[:4] == than[:4], moment[:10] == than[:10]
    return minutes(moment)[11 if same_day else 5 if same_year else 0 :]


def _how_many(document: Document) -> str:
    first, last, undated = document["first"], document["last"], document["undated"]
    where = _plural(len(document["sources"]), "source")
    letters = _plural(document["letters"], "dead letter")
    if first is None:
        return f"{letters} in {where}; their time of death is unknown."
    span = ((clock.from_iso(last) or 0) - (clock.from_iso(first) or 0)) / 1e6
    lasted = f" ({human_seconds(span)})" if span >= 1 else ""
    unknown = f"; {undated:,} of unknown time" if undated else ""
    return f"{letters} in {where}, from {minutes(first)} to {_brief(last, first)} UTC{lasted}{unknown}."


def _causes(causes: Sequence[Document]) -> list[str]:
    """Say what died of what; nothing where verdicts of a damaged analysis name no cause."""
    if not causes:
        return []
    top, *others = causes
    rest = ", ".join(f"{row['name']} {row['share']:.1%}" for row in others[:3])
    more = f", and {_plural(len(others) - 3, 'more cause')}" if len(others) > 3 else ""
    return [f"{top['share']:.1%} {top['name']}: {top['meaning']}{'; then ' if rest else ''}{rest}{more}."]


def tell_what_to_do(document: Mapping[str, Any]) -> str:
    """Say `321 may go back; 42 may go back once the cause is fixed.`"""
    waiting = [(row["waiting"], _SENTENCES.get(row["advice"], row["advice"])) for row in document["advice"]]
    confirmed, dismissed = (document["counts"][state] for state in ("confirmed", "dismissed"))
    parts = [f"{count:,} {text}" for count, text in waiting if count]
    parts += [f"{confirmed:,} went back already"] if confirmed else []
    parts += [f"{dismissed:,} dismissed"] if dismissed else []
    return f"{'; '.join(parts)}." if parts else "Nothing is left to do."


def _still_queued(document: Document) -> list[str]:
    count = sum(row["still_queued"] for row in document["sources"])
    which = "All" if count == document["letters"] else f"{count:,}"
    return [f"{which} of them still lie in their dead-letter queues."] if count else []


def _doubts(counts: Mapping[str, int]) -> list[str]:
    said = {
        "in_doubt": "in doubt: reconcile their plans first",
        "sending": "being sent, or in doubt if no apply runs",
    }
    return [f"{_plural(counts[name], 'letter')} {words}." for name, words in said.items() if counts[name]]
