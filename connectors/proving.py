"""Did letters arrive? What a broker shows of them becomes `sent`, `not_sent` or `unknown` here alone.

A letter that is seen was sent. One that is not was not sent only where it would still be seen: by a *trail*
that a run leaves (a witness, markers), of which nothing is missing, or in a *log* that is whole since before
the first was sent. Why that may not be so is a doubt, in words for a person.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from dlq.connectors.base import Outgoing, Presence, Proof
from dlq.core.headers.provenance import REPLAY_ID

_NONE: Mapping[int, str] = MappingProxyType({})


def decide(
    letters: Iterable[Outgoing],
    seen: Collection[int],
    doubts: Sequence[str],
    doubted: Mapping[int, str] = _NONE,
) -> Proof:
    """Return what is known of letters. `seen`: the numbers of those that the broker shows; `doubts`: why it
    may not show all that came; `doubted`: the numbers of those that are unknown either way, and why."""
    absent: Presence = "unknown" if doubts else "not_sent"
    shown: dict[int, Presence] = {one.number: "sent" if one.number in seen else absent for one in letters}
    own = {number: doubted[number] for number in shown if number in doubted}
    said = dict.fromkeys(filter(None, own.values()))
    return Proof({**shown, **dict.fromkeys(own, "unknown")}, [*said, *doubts])


def numbers_of(letters: Iterable[Outgoing], replay_ids: Collection[str]) -> set[int]:
    """Return the numbers of the letters that have one of these ids."""
    return {letter.number for letter in letters if letter.provenance[REPLAY_ID] in replay_ids}


def decide_by_place(
    letters: Iterable[Outgoing],
    place_of: Callable[[Outgoing], str],
    decide_there: Callable[[str, Sequence[Outgoing]], Proof],
) -> Proof:
    """Return what is known of letters of several logs, each by itself."""
    by_place: dict[str, list[Outgoing]] = {}
    for letter in letters:
        by_place.setdefault(place_of(letter), []).append(letter)
    proofs = [decide_there(place, some) for place, some in by_place.items()]
    shown = {number: presence for proof in proofs for number, presence in proof.shown.items()}
    return Proof(shown, [doubt for proof in proofs for doubt in proof.doubts])


def why_unknown(place: str) -> str:
    """Return the doubt about a log of which nothing was noted."""
    return f"nothing says where {place} ended before the first letter was sent"


def why_lost(place: object, first: int, end: int, ended: int) -> list[str]:
    """Return why a log that holds [first, end) may lack what followed `ended`."""
    if first > ended:
        return [f"{place} begins at {first}: retention has taken what followed {ended}"]
    if end < ended:
        return [f"{place} ends at {end}, before {ended}: its end was cut off, or it was made anew"]
    return []


def why_compacted(place: str, is_compacted: bool | None, right: str) -> list[str]:
    """Return why compaction may have taken letters from a log. None: the user lacks a right to know."""
    if is_compacted is None:
        return [f"the user may not read whether {place} is compacted ({right})"]
    return [f"{place} is compacted, which may have removed it"] if is_compacted else []
