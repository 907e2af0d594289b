"""The answer first: how many, why, since when, and what to do, in a few sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

from dlq.core import clock
from dlq.core.causes import spoken
from dlq.core.units import human_seconds
from dlq.reports.previews import LIMITS

Document = Mapping[str, Any]

_SENTENCES: Mapping[str, str] = {
    "replay": "may go back",
    "fix_first": "may go back once the cause is mended",
    "check_first": "need a look into the business data first",
    "never": "must not go back",
    "hold": "have to wait, their outcome can still change",
    "no_verdict": "have no verdict yet",
}


def sentences(document: Document) -> list[str]:
    """What one would say aloud to whoever asks."""
    selection = document.get("selection")
    if not document["letters"]:
        return [f"No letters with {selection}." if selection else "The archive holds no letters."]
    return [
        *([f"Only letters with {selection}."] if selection else []),
        _how_many(document),
        _why(document["causes"]),
        _what_to_do(document),
        *_urgent(document["counts"]),
        *_previewed(document["previewed"]),
    ]


def basis(document: Document) -> str:
    """What the report rests on."""
    made = f"{minutes(document['created_at'])} UTC"
    name = document["analysis"]
    return f"analysis {name} of {made}" if name else f"a preview of {made}, before any analysis"


def _previewed(letters: int) -> list[str]:
    said = "1 letter is" if letters == 1 else f"{letters:,} letters are"
    return [f"{said} only previewed. {LIMITS}"] if letters else []


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def minutes(moment: str | None) -> str:
    """A time for people: 2026-11-02 03:12."""
    return moment[:16].replace("T", " ") if moment else "unknown"


def failure(row: Document) -> tuple[str, str]:
    """What a fingerprint stands for: exception and message, or the cause and where it happened."""
    if row["exception_class"]:
        return str(row["exception_class"]), str(row["exception_message"] or "")
    return spoken(str(row["cause"]), row["broker_kinds"]), f"in {row['origin']}" if row["origin"] else ""


def _how_many(document: Document) -> str:
    first, last, undated = document["first"], document["last"], document["undated"]
    where = _plural(len(document["sources"]), "source")
    letters = _plural(document["letters"], "dead letter")
    if first is None:
        return f"{letters} in {where}; nothing says when they died."
    span = ((clock.from_iso(last) or 0) - (clock.from_iso(first) or 0)) / 1e6
    lasted = f" ({human_seconds(span)})" if span >= 1 else ""
    until = minutes(last)[11:] if first[:10] == last[:10] else minutes(last)
    unknown = f"; of {undated:,} nothing says when" if undated else ""
    return f"{letters} in {where}, from {minutes(first)} to {until} UTC{lasted}{unknown}."


def _why(causes: Sequence[Document]) -> str:
    top, *others = causes
    rest = ", ".join(f"{row['name']} {row['share']:.1%}" for row in others[:3])
    more = f", and {_plural(len(others) - 3, 'more cause')}" if len(others) > 3 else ""
    return f"{top['share']:.1%} {top['name']}: {top['meaning']}{'; then ' if rest else ''}{rest}{more}."


def _what_to_do(document: Document) -> str:
    waiting = [(row["waiting"], _SENTENCES.get(row["advice"], row["advice"])) for row in document["advice"]]
    confirmed, dismissed = (document["counts"][state] for state in ("confirmed", "dismissed"))
    parts = [f"{count:,} {text}" for count, text in waiting if count]
    parts += [f"{confirmed:,} went back already"] if confirmed else []
    parts += [f"{dismissed:,} dismissed"] if dismissed else []
    return f"{'; '.join(parts)}." if parts else "Nothing is left to do."


def _urgent(counts: Mapping[str, int]) -> list[str]:
    said = []
    if counts["ongoing"]:
        said.append(f"{_plural(counts['ongoing'], 'incident')} still going on.")
    if counts["in_doubt"] + counts["sending"]:
        said.append(f"{counts['in_doubt'] + counts['sending']:,} replays are in doubt: reconcile them first.")
    return said
