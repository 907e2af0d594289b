"""What the owner of a consumer says of replays to it (`[consumers.NAME]`), and what follows for a letter.

An owner loosens only `check_first`, and only where no store of `[evidence]` is configured for the source;
`never` and `hold` stand.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from dlq.core.clock import now
from dlq.core.settings import Consumer, Settings
from dlq.core.values import units

TIMES = ("published_at", "first_dead_at", "dead_at")
"""The columns that say how old a letter is; the oldest known time counts."""
_STRICTEST = ("never", "check_first")


class Owners:
    """The words of all owners, as they are true at one moment."""

    def __init__(self, settings: Settings, moment: int | None = None) -> None:
        """`moment`: microseconds since the epoch; now unless given."""
        self._settings, self._moment = settings, now() if moment is None else moment
        self._known: dict[str, Sequence[Consumer]] = {}
        self._letters: Counter[str] = Counter()
        self._older: Counter[str] = Counter()

    def find(self, source: str) -> Sequence[Consumer]:
        """Return the consumers whose letters lie in this source."""
        if source not in self._known:
            consumers = self._settings.consumers.values()
            self._known[source] = [one for one in consumers if _covers(one.sources, source)]
        return self._known[source]

    def advise(self, source: str, advice: str | None, oldest: int | None) -> str | None:
        """Return what to do with a letter whose verdict has `advice`; `oldest` is its oldest known time, as
        `is_older` takes it."""
        if advice in (None, "never", "hold"):
            return advice
        words = {self._word(one, oldest) for one in self.find(source)}
        for word in _STRICTEST:
            if word in words:
                return word
        is_loosened = "safe" in words and advice == "check_first" and not self._has_store(source)
        return "replay" if is_loosened else advice

    def oldest_held(self, consumer: Consumer) -> int | None:
        """Return the oldest time of messages for which the owner's word holds; None: it holds for all."""
        holds_for = consumer.holds_for
        return None if holds_for is None else self._moment - round(units.seconds(holds_for) * 1_000_000)

    def is_older(self, consumer: Consumer, oldest: int | None) -> bool:
        """Return whether the owner's word does not hold for a message of this time; without a time it does
        not."""
        limit = self.oldest_held(consumer)
        return limit is not None and (oldest is None or oldest < limit)

    def ends(self, source: str, oldest: int | None) -> int | None:
        """Return when the first word that holds for a message of this time ends; None: never."""
        if oldest is None:
            return None
        words = [one for one in self.find(source) if one.replay not in _STRICTEST]
        limits = [limit for one in words if (limit := self.oldest_held(one)) is not None and limit <= oldest]
        return oldest + self._moment - max(limits) if limits else None

    def count(self, source: str, oldest: int | None) -> None:
        """Count a letter for `describe`."""
        for one in self.find(source):
            self._letters[one.name] += 1
            self._older[one.name] += self.is_older(one, oldest)

    def describe(self) -> list[str]:
        """Return what the owners say of the letters that were counted, a sentence each."""
        consumers = self._settings.consumers
        return [describe(consumers[name], count, self._older[name]) for name, count in self._letters.items()]

    def _word(self, consumer: Consumer, oldest: int | None) -> str | None:
        is_older = consumer.replay != "never" and self.is_older(consumer, oldest)
        return "check_first" if is_older else consumer.replay

    def _has_store(self, source: str) -> bool:
        return any(_covers(store.sources, source) for store in self._settings.evidence.values())


def describe(consumer: Consumer, letters: int, older: int) -> str:
    """Return the owner's word on so many letters, for `older` of which it does not hold any more."""
    because = f" ({consumer.because})" if consumer.because else ""
    of_older = f"; {older:,} of {letters:,} are older: check_first" if older else ""
    before = f". Before: {consumer.before}" if consumer.before else ""
    return f"{consumer.name}: {consumer.replay or 'no word on replays'}{because}{of_older}{before}"


def oldest_of(times: Iterable[int | None]) -> int | None:
    """Return the oldest of the times that are known, in microseconds since the epoch."""
    return min((one for one in times if one is not None), default=None)


def _covers(patterns: Iterable[str], source: str) -> bool:
    return any(fnmatchcase(source, pattern) for pattern in patterns)
