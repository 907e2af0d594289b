"""What a replay changes about a letter's envelope, and where the letter goes when it dies again: asked when a
plan is made."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import NamedTuple

from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.connectors.rabbitmq.look.management import Management, ManagementError
from dlq.connectors.rabbitmq.look.receivers import Bindings
from dlq.connectors.rabbitmq.look.topology import dead_letters, setting_of
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.records.envelope import CELERY, Way, first_delivered, is_of_celery, what_changes
from dlq.connectors.rabbitmq.send import Ways, missing_rights
from dlq.core.errors import BrokerError
from dlq.core.text import for_terminal

_MOST = 1_000
"""Different keys that are looked into: each is held against the bindings."""
_NO_ANSWER = "it is not known whether the user may make an exchange that leads there"


class _Next(NamedTuple):
    """Where letters go when they die again; `queues` is None where that is not known."""

    in_words: str
    queues: frozenset[str] | None = None

    @property
    def is_nowhere(self) -> bool:
        """Whether no queue gets them."""
        return self.queues == frozenset()


class Prospects:
    """What becomes of letters for queues. Each queue is asked about once."""

    def __init__(self, broker: RabbitBroker) -> None:
        self._broker = broker
        self._against: dict[str, str] = {}
        """Queue -> what keeps a plan from an exchange of its own to it."""
        self._next = lru_cache(maxsize=_MOST)(self._ask)
        self._prospect = lru_cache(maxsize=_MOST)(self._look_ahead)

    def learn(self, targets: Iterable[Target]) -> None:
        """Ask whether a plan may have a way of its own to these."""
        new = {target.name for target in targets if target.kind == "queue"} - self._against.keys()
        if new:
            self._against |= dict.fromkeys(new, _NO_ANSWER)
            with suppress(BrokerError):
                self._against |= missing_rights(self._broker, sorted(new))

    def preview(self, letter: Outgoing, found: SendPreview) -> SendPreview:
        """Return what is `found` of a letter that can be sent, with what changes, and with what comes
        next."""
        target = letter.target
        if target.kind != "queue" or found.problem is not None:
            return found
        if target.name not in self._against:
            self.learn([target])
        came, of_celery = first_delivered(letter.record, target.name), is_of_celery(letter.record)
        changes, nowhere, way = self._prospect(target, came, of_celery, self._against[target.name])
        return SendPreview(
            [name for name in found.stripped if name not in _COPIES] if way.copies else found.stripped,
            None,
            [*found.warnings, changes] if changes else found.warnings,
            {**found.unless_named, "target": nowhere} if nowhere else found.unless_named,
            bool(way.exchange),
        )

    def _look_ahead(
        self, target: Target, came: Way | None, of_celery: bool, against: str
    ) -> tuple[str | None, str | None, Way]:
        """Return what changes, why the letter goes only to a target that is named, and its way: the same for
        all that came alike."""
        keeps = not against and not of_celery
        way = Ways(self._broker, "").way_to(target.name, came if keeps else None)
        changes = what_changes(target.name, came, way, CELERY if of_celery else against)
        place = self._next(target.name, (way.key, *way.copies))
        if changes and (came is None or came[1:] != way[1:]):
            changes = f"{changes}; {place.in_words}"
        nowhere = f"queue {for_terminal(target.name)}: {place.in_words}" if place.is_nowhere else None
        return changes, nowhere, way

    @cached_property
    def _deaths(self) -> "_Deaths | None":
        return _Deaths(Management(self._broker)) if self._broker.management_url else None

    def _ask(self, queue: str, keys: tuple[str, ...]) -> _Next:
        if self._deaths is None:
            return _Next(f"{_UNKNOWN}: management_url would tell")
        if self._next.cache_info().misses > _MOST:
            return _Next(f"{_UNKNOWN}: they have too many different keys")
        try:
            return self._deaths.follow(queue, keys)
        except ManagementError as error:
            return _Next(f"{_UNKNOWN}: {error}")


class _Deaths:
    """Where letters of a virtual host go that die, by the management API."""

    def __init__(self, management: Management) -> None:
        self._management, self._bindings = management, Bindings(management)

    def follow(self, queue: str, keys: Sequence[str]) -> _Next:
        """Follow letters that die in a queue, with these keys of their own. Raises ManagementError."""
        try:
            return self._trace(queue, keys, frozenset())
        finally:
            self._management.close()  # until the next question the other side may lose its patience

    def _trace(self, queue: str, keys: Sequence[str], before: frozenset[str]) -> _Next:
        """Follow letters through queues in which they wait for their next attempt."""
        found = self._bindings.queue(queue)
        exchange, key = (dead_letters(found, what) for what in ("exchange", "routing-key"))
        if exchange is None:
            is_told = "effective_policy_definition" in found
            return _Next(
                _NO_EXCHANGE
                if is_told
                else f"{_UNKNOWN}: the policies of {for_terminal(queue)} are not shown yet"
            )
        keys = keys if key is None else (key,)
        reached = self._bindings.queues(exchange, keys)
        if reached is None:
            return _Next(f"{_UNKNOWN}: {for_terminal(exchange)} goes by more than the key")
        nowhere = _NOWHERE.format(*map(for_terminal, (exchange, keys[0])))
        ends: set[str] = set()
        for name in reached - ({queue} if key is None else set()):
            waits = name not in before and name != queue and self._is_wait(name)
            further = self._trace(name, keys, before | {queue}) if waits else _Next("", frozenset({name}))
            if further.queues is None:
                return further
            ends |= further.queues
            nowhere = further.in_words or nowhere
        places = for_terminal(", ".join(sorted(ends)))
        return _Next(f"when they die again they go to {places}" if ends else nowhere, frozenset(ends))

    def _is_wait(self, name: str) -> bool:
        """Return whether letters come to their end there, and go on."""
        found = self._bindings.queue(name)
        return setting_of(found, "message-ttl") is not None and dead_letters(found, "exchange") is not None


_COPIES = ("CC", "x-cc")
_UNKNOWN = "where they go when they die again is not known"
_NO_EXCHANGE = "what is rejected there is gone, as it has no dead-letter exchange"
_NOWHERE = (
    "no other queue gets what dies there again, as the dead-letter exchange {} takes the key {} nowhere"
)
