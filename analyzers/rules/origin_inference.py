"""The queue of a letter that no rule names, by what the broker's bindings tell: RabbitMQ.

Frameworks that park a letter by themselves often note only the exchange and the key with which it was first
published. Where one queue alone gets such messages, it died there. One that waited in a retry queue comes
from where that sends it on.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from dlq.analyzers.rules.deaths import history
from dlq.analyzers.rules.letter import Facts, Letter

_NOTHING: Mapping[str, str] = {}


def find_way_back(letter: Letter, exchange: str | None, key: str | None, facts: Facts) -> str | None:
    """Return the queue that it died in; `exchange` and `key` are those of its first publishing. None where
    bindings tell none, or several."""
    if letter.broker_kind != "rabbitmq":
        return None
    routes = facts.routes.get(facts.place_of(letter), {})
    ways = ((exchange, key), _sent_on(letter, facts))
    found = (find_one_queue(routes, *way) for way in ways)
    return next((queue for queue in found if queue not in (None, letter.dead_letter_queue)), None)


_NAMED_AFTER = re.compile(r"\A(.{1,250})[._-](?:dlq|error|failed|parked)\Z", re.IGNORECASE)
"""How applications call the queue into which they put what failed of another."""


def find_by_name(letter: Letter) -> str | None:
    """Return the queue after which its dead-letter queue is called, where an application sent it there
    itself: the broker's exchanges and keys then tell nothing."""
    is_sent_here = letter.exchange == "" and letter.routing_key == letter.dead_letter_queue
    found = _NAMED_AFTER.match(letter.dead_letter_queue) if is_sent_here else None
    return found[1] if found and letter.broker_kind == "rabbitmq" else None


def _sent_on(letter: Letter, facts: Facts) -> tuple[str | None, str | None]:
    """Return exchange and key by which the retry queue that it waited in sends it on."""
    last = history(letter).last
    if last is None or last.reason != "expired" or last.queue is None:
        return None, None
    exchange = facts.dead_letter_exchanges.get(facts.place_of(letter), _NOTHING).get(last.queue)
    key = facts.dead_letter_keys.get(facts.place_of(letter), _NOTHING).get(last.queue)
    return exchange, key or next(iter(last.routing_keys), None)


def find_one_queue(
    routes: Mapping[str, Mapping[str, Sequence[str]]], exchange: str | None, key: str | None
) -> str | None:
    """Return the only queue that gets messages of an exchange and a key."""
    if exchange is None or key is None:
        return None
    if exchange == "":
        return key or None
    patterns = routes.get(exchange, {})
    queues = {queue for pattern, bound in patterns.items() if _is_met(pattern, key) for queue in bound}
    return next(iter(queues)) if len(queues) == 1 else None


def _is_met(pattern: str, key: str) -> bool:
    return pattern == key or bool({"*", "#"} & set(pattern) and _compile(pattern).fullmatch(f".{key}"))


@lru_cache(1024)
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of words: `*` is one, `#` any number of them."""
    words = {"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}
    return re.compile("".join(words.get(word) or rf"\.{re.escape(word)}" for word in _pattern_words(pattern)))


def _pattern_words(pattern: str) -> list[str]:
    """Return its words; of several `#` in a row one, for their matches would be tried in all combinations."""
    found: list[str] = []
    for word in pattern.split("."):
        if word != "#" or found[-1:] != ["#"]:
            found.append(word)
    return found
