"""What can be learned of a queue and its neighbourhood without touching a message.

The management API says most. Without it, a declare whose arguments differ from the queue's is refused
with 406 and a text that names one difference; answering each of them ends in the queue's own arguments
(never its policies). That needs the right to configure the queue.
"""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pika import spec

from dlq.connectors.net.web import whole
from dlq.connectors.rabbitmq.amqp091.link.questions import Questions, Refused, questions
from dlq.connectors.rabbitmq.look.management import Management, ManagementError, mapping
from dlq.connectors.rabbitmq.look.routes import Routes, list_routes, queues_reached
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import BrokerError, Unreachable
from dlq.core.runtime import patience

_DEFAULT_LIMIT = 20
"""Deliveries that a quorum queue of RabbitMQ 4 allows where nothing else is said (release notes 4.0)."""

_MOST_DIFFERENCES = 24
_DIFFERENCE = re.compile(
    r"inequivalent arg '([^']+)' for queue .* but current is "
    r"(?:none|'(?P<plain>.*)'|the value '(?P<value>.*)' of type '(?P<type>\w+)')"
)
_NOT_SEEN_YET = (
    "the management API does not know the queue's policies: it is new (look again in 10 s), or statistics "
    "are switched off (management_agent.disable_metrics_collector)"
)
_HOLDERS_NOT_KNOWN = "{}; whether a consumer holds a classic queue exclusively stays unknown"
_FLAGS = ("durable", "auto_delete", "exclusive")
_COLUMNS = (
    "name,type,state,leader,arguments,effective_policy_definition,messages_unacknowledged,messages,"
    "message_bytes,messages_delayed,messages_dlx,message_stats.publish," + ",".join(_FLAGS)
)


SERVING = ("running", "idle", "flow", "live")
"""States of a queue, the last on a 3.10 without statistics; in others (down, minority) the node answers for
it, and says 0."""
_POLICY_WINS = (("quorum", "overflow"),)
"""Type of a queue and setting of which a policy wins over an argument (rabbit_quorum_queue.erl,
gather_policy_config)."""


@dataclass(frozen=True)
class Topology:
    """One queue: `kind` is classic, quorum, stream or None (unknown). Limits in the broker's units
    (ms, bytes, letters). `policies_known` is False where only the queue's own arguments are known."""

    kind: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    """durable, auto_delete, exclusive, as far as known."""
    policies_known: bool = False
    delivery_limit: int | None = None
    unacknowledged: int | None = None
    size: int | None = None
    """Bytes of the bodies of the letters that were `counted`, which is some seconds ago."""
    counted: int = 0
    delayed: int = 0
    """Letters that were given back and are hidden for a while."""
    bindings: tuple[str, ...] = ()
    alternate_exchanges: tuple[str, ...] = ()
    """Alternate exchanges of other exchanges that route to this queue."""
    delivery_limits: Mapping[str, int] = field(default_factory=dict)
    """The limits of all quorum queues of the virtual host that have one, by queue."""
    dead_letter_exchanges: Mapping[str, str] = field(default_factory=dict)
    """The dead-letter exchanges of all queues of the virtual host that have one, by queue."""
    dead_letter_keys: Mapping[str, str] = field(default_factory=dict)
    """And the keys, of those that have one of their own."""
    routes: Routes = field(default_factory=dict)
    held: bool = False
    """A consumer has the queue for itself alone, which a quorum queue grants nobody (3.10.8, 4.3.6)."""
    returns_by: tuple[str, ...] = ()
    """Where dead letters go from here that come back to this queue by further dead-letter exchanges."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Queue -> letters that died in it, and wait there until this queue has room, where its dead-lettering is
    at-least-once; they are no part of any depth (`messages_dlx`)."""
    ends_in_circles: bool = False
    """What expires comes back without a rejection on its way, and RabbitMQ drops it (rabbit_dead_letter.erl,
    detect_cycles)."""
    published: int = 0
    """Messages that came from publishers, not by a dead-letter exchange, since some moment in the past."""
    state: str = ""
    """See `state_of`; empty: it is not known."""
    notes: tuple[str, ...] = ()
    host_known: bool = False
    """The management API has told of it and its virtual host."""

    def setting(self, name: str) -> Any:
        """Return the value in force of e.g. `message-ttl`: of a policy and an argument the smaller number,
        else the argument, but for _POLICY_WINS."""
        both = self.arguments.get(f"x-{name}"), self.policy.get(name)
        found = [v for v in (both[::-1] if (self.kind, name) in _POLICY_WINS else both) if v is not None]
        numbers = [v for v in found if isinstance(v, int)]
        return min(numbers) if numbers and len(numbers) == len(found) else next(iter(found), None)

    @property
    def overflow(self) -> str:
        """What it does when full: a quorum queue knows no reject-publish-dlx, and drops its oldest."""
        how = str(self.setting("overflow") or "drop-head")
        return "drop-head" if (self.kind, how) == ("quorum", "reject-publish-dlx") else how

    def document(self) -> dict[str, Any]:
        """Return the document that the archive keeps beside the pull."""
        return {
            "queue_type": self.kind,
            "arguments": dict(self.arguments),
            "policy": dict(self.policy),
            "policies_known": self.policies_known,
            "delivery_limit": self.delivery_limit,
            "message_ttl": self.setting("message-ttl"),
            "expires": self.setting("expires"),
            "max_length": self.setting("max-length"),
            "max_length_bytes": self.setting("max-length-bytes"),
            "bindings": list(self.bindings),
            **(self._of_the_host() if self.host_known else {}),
        }

    def _of_the_host(self) -> dict[str, Any]:
        """Return what verdicts rest on; where nobody told of it, what an earlier pull learned holds on."""
        return {
            "alternate_exchanges": list(self.alternate_exchanges),
            "delivery_limits": self.delivery_limits,
            "dead_letter_exchanges": self.dead_letter_exchanges,
            "dead_letter_keys": self.dead_letter_keys,
            "routes": self.routes,
        }


def limit_in_force(
    kind: str | None,
    arguments: Mapping[str, Any],
    policy: Mapping[str, Any],
    version: tuple[int, ...],
    default: int | None = _DEFAULT_LIMIT,
) -> int | None:
    """Return the failed deliveries after which a quorum queue removes a letter; None: never, or, where
    policies are not known and so no `default` holds, not known.

    RabbitMQ 4 has a default and takes a negative number for "never"; for 3.x it is a limit of nothing.
    """
    if kind != "quorum":
        return None
    said = [
        v for v in (arguments.get("x-delivery-limit"), policy.get("delivery-limit")) if isinstance(v, int)
    ]
    if version < (4,):
        return min(said, default=None)
    limit = max(said) if any(v < 0 for v in said) else min(said, default=default)
    return None if limit is None or limit < 0 else limit


def version_of(text: str) -> tuple[int, ...]:
    """Return `4.3.6` or `3.13.0-rc.1` as numbers."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


@dataclass(frozen=True)
class VirtualHost:
    """What the management API lists of a virtual host, asked once however many queues are looked at."""

    queues: Mapping[str, Mapping[str, Any]]
    sources: Mapping[str, Mapping[str, str]]
    """Queue -> exchange that it is bound to -> routing key."""
    alternates: frozenset[str]
    held: frozenset[str]
    """Queues that a consumer has for itself alone."""
    notes: tuple[str, ...] = ()
    """What is not known of it, in words."""
    routes: Routes = field(default_factory=dict)
    """See `routes.list_routes`."""
    _limits: dict[tuple[int, ...], Mapping[str, int]] = field(default_factory=dict, repr=False)

    def delivery_limits(self, version: tuple[int, ...]) -> Mapping[str, int]:
        """See `Topology`; counted once, however many queues are looked at."""
        if version not in self._limits:
            found = {name: _limit_of(queue, version) for name, queue in self.queues.items()}
            self._limits[version] = {name: limit for name, limit in found.items() if limit is not None}
        return self._limits[version]

    def comes_back(self, queue: str, by: Callable[[str], bool] = lambda _: True) -> bool:
        """Return whether what dies in a queue comes to it again by dead-letter exchanges, through queues of
        which `by` holds."""
        ahead, seen = [queue], set[str]()
        while ahead:
            found = self.dead_letters_reach(ahead.pop()) - seen
            if queue in found:
                return True
            seen |= found
            ahead += filter(by, found)
        return False

    def dead_letters_reach(self, queue: str) -> set[str]:
        """Return the queues that dead letters of a queue go to, as far as `routes` tell."""
        exchange, key = self.dead_letter_exchanges.get(queue), self.dead_letter_keys.get(queue)
        if not exchange:
            return {key} if key and exchange is not None else set()
        return queues_reached(self.routes, exchange, key)

    def waiting_for(self, queue: str) -> dict[str, int]:
        """See `Topology.waiting`."""
        held = {name: whole(one.get("messages_dlx")) or 0 for name, one in self.queues.items()}
        return {name: n for name, n in held.items() if n and queue in self.dead_letters_reach(name)}

    def expires(self, queue: str) -> bool:
        """Return whether letters of a queue come to an end there after a time."""
        return setting_of(self.queues.get(queue, {}), "message-ttl") is not None

    @cached_property
    def dead_letter_exchanges(self) -> Mapping[str, str]:
        """See `Topology`."""
        return self._dead_letters("exchange")

    @cached_property
    def dead_letter_keys(self) -> Mapping[str, str]:
        """See `Topology`."""
        return self._dead_letters("routing-key")

    def _dead_letters(self, what: str) -> Mapping[str, str]:
        found = {name: dead_letters(queue, what) for name, queue in self.queues.items()}
        return {name: value for name, value in found.items() if value is not None}


def virtual_host(broker: RabbitBroker) -> VirtualHost:
    """Ask the management API. Raises ManagementError."""
    with closing(Management(broker)) as management:
        alternates = frozenset(alternate_exchanges(management))
        listed = management.get_all("queues", management.vhost, columns=_COLUMNS)
        sources: dict[str, dict[str, str]] = {}
        bindings = management.get_all("bindings", management.vhost)
        for binding in bindings:
            if binding.get("destination_type") == "queue" and binding.get("source"):
                bound = sources.setdefault(str(binding.get("destination")), {})
                bound[str(binding["source"])] = str(binding.get("routing_key", ""))
        routes = list_routes(management.get_all("exchanges", management.vhost, columns="name,type"), bindings)
        queues = {str(queue.get("name")): queue for queue in listed}
        return VirtualHost(queues, sources, alternates, *_held_queues(management), routes)


def _held_queues(management: Management) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the queues that a consumer has for itself alone, or a note: without statistics the management
    API lists no consumers."""
    try:
        consumers = management.get_all("consumers", management.vhost)
    except ManagementError as error:
        return frozenset(), (_HOLDERS_NOT_KNOWN.format(error),)
    exclusive = (one for one in consumers if one.get("exclusive") is True)
    return frozenset(str(mapping(one.get("queue")).get("name")) for one in exclusive), ()


def known_host(broker: RabbitBroker) -> VirtualHost | None:
    """Call `virtual_host`; None where the management API is not there to be asked, or does not answer."""
    try:
        return virtual_host(broker) if broker.management_url else None
    except ManagementError:
        return None


def learn(
    broker: RabbitBroker,
    queue: str,
    version: str,
    asking: Callable[[], Questions],
    host: VirtualHost | None = None,
) -> Topology:
    """Return all that the management API says, or has said of the `host`, else what declares can find out by
    `asking`."""
    reasons: list[str] = []
    if broker.management_url:
        try:
            known = from_host(host or virtual_host(broker), queue, version_of(version))
            if known.kind is not None:
                return known
            reasons += known.notes
        except ManagementError as error:
            reasons.append(f"{error}; policies, bindings and limits stay unknown")
    found = _declared_arguments(asking(), queue)
    if found is None:
        return Topology(notes=tuple(reasons))
    arguments, flags = found
    kind = str(arguments.get("x-queue-type", "classic"))
    limit = limit_in_force(kind, arguments, {}, version_of(version), default=None)
    return Topology(kind, arguments, flags=flags, delivery_limit=limit, notes=tuple(reasons))


def learn_apart(broker: RabbitBroker, queue: str, version: str, host: VirtualHost | None = None) -> Topology:
    """Return the same, by a connection of its own where one is needed. Raises BrokerError."""
    with ExitStack() as opened:
        return learn(broker, queue, version, lambda: opened.enter_context(questions(broker)), host)


def rejects_when_full(broker: RabbitBroker, queue: str) -> Topology | None:
    """Return a queue that is known to nack what comes when it is full. Else a nack means that it failed: so
    is answered what a classic queue of a cluster may have stored when its node went down (4.3)."""
    try:
        found = learn_apart(broker, queue, "") if queue else None
    except BrokerError:
        return None
    return found if found and found.overflow.startswith("reject-publish") else None


def may_be_full(broker: RabbitBroker, rejecting: Callable[[str], Topology | None], queue: str) -> bool:
    """Return whether a nack says that the queue is full: it is one that rejects then, answers at once, and
    does not have room. For one on a node that is down a broker of 4.3 waits in case that comes back, and its
    management API says that it runs. A classic one that failed alone is there again at once, without its
    consumers."""
    if (found := rejecting(queue)) is None:
        return False
    try:
        with questions(broker, patience.REPLY) as asking:
            now = asking.queue(queue)
    except BrokerError:
        return False
    most = found.setting("max-length") if found.kind == "classic" else None
    return bool(now.consumer_count) or not isinstance(most, int) or bool(now.message_count >= most)


def is_down(broker: RabbitBroker, queue: str) -> bool:
    """Return whether the queue lies on a node that is down. 3.10 routes nothing to it, as if it were not
    there."""
    try:
        if queue:
            with questions(broker) as asking:
                asking.queue(queue)
    except BrokerError as error:
        return isinstance(error, Unreachable)
    return False


def from_host(host: VirtualHost, queue: str, version: tuple[int, ...]) -> Topology:
    found = host.queues.get(queue)
    if found is None:
        return Topology(notes=(f"the management API does not show the queue {queue}",))
    seen = "effective_policy_definition" in found
    policy = mapping(found.get("effective_policy_definition"))
    sources = host.sources.get(queue, {})
    return Topology(
        kind=str(found.get("type", "classic")),
        state=state_of(found),
        arguments=mapping(found.get("arguments")),
        policy=policy,
        flags={name: bool(found[name]) for name in _FLAGS if name in found},
        policies_known=seen,
        host_known=True,
        held=queue in host.held and found.get("type") == "classic",
        notes=host.notes if seen else (_NOT_SEEN_YET, *host.notes),
        delivery_limit=_limit_of(found, version),
        unacknowledged=whole(found.get("messages_unacknowledged")),
        size=whole(found.get("message_bytes")),
        counted=whole(found.get("messages")) or 0,
        delayed=whole(found.get("messages_delayed")) or 0,
        returns_by=tuple(sorted(host.dead_letters_reach(queue))) if host.comes_back(queue) else (),
        waiting=host.waiting_for(queue),
        ends_in_circles=host.expires(queue) and host.comes_back(queue, host.expires),
        published=whole(mapping(found.get("message_stats")).get("publish")) or 0,
        bindings=tuple(f"{exchange}/{key}" for exchange, key in sorted(sources.items())),
        alternate_exchanges=tuple(sorted(host.alternates & set(sources))),
        delivery_limits=host.delivery_limits(version),
        dead_letter_exchanges=host.dead_letter_exchanges,
        dead_letter_keys=host.dead_letter_keys,
        routes=host.routes,
    )


def _limit_of(queue: Mapping[str, Any], version: tuple[int, ...]) -> int | None:
    policy = mapping(queue.get("effective_policy_definition"))
    default = _DEFAULT_LIMIT if "effective_policy_definition" in queue else None
    return limit_in_force(queue.get("type"), mapping(queue.get("arguments")), policy, version, default)


def state_of(queue: Mapping[str, Any]) -> str:
    """Return the state of a queue that the management API shows. 3.10 tells none of a quorum queue that has
    no leader, or no statistics yet."""
    is_led = queue.get("type") == "classic" or queue.get("leader")
    return str(queue.get("state") or "idle") if is_led else "without a leader"


def setting_of(queue: Mapping[str, Any], name: str) -> Any:
    """Return a setting of a queue as the management API shows it; an argument of the queue wins over a
    policy."""
    arguments, policy = mapping(queue.get("arguments")), mapping(queue.get("effective_policy_definition"))
    return arguments.get(f"x-{name}", policy.get(name))


def dead_letters(queue: Mapping[str, Any], what: str) -> str | None:
    """Return the same of the dead-letter `exchange` or `routing-key`."""
    found = setting_of(queue, f"dead-letter-{what}")
    return None if found is None else str(found)


def alternate_exchanges(management: Management) -> dict[str, str]:
    """Map alternate exchanges to one that has each, by argument or by policy. Raises ManagementError."""
    exchanges = management.get_all("exchanges", management.vhost, columns="name,arguments,policy")
    policies = policies_of(management)
    found: dict[str, str] = {}
    for exchange in exchanges:
        if name := alternate_of(exchange, policies):
            found.setdefault(name, str(exchange.get("name")))
    return found


def policies_of(management: Management) -> Mapping[str, Mapping[str, Any]]:
    """Return the policies of a virtual host by name. Raises ManagementError, also where it is not let."""
    return {str(one.get("name")): one for one in management.get_all("policies", management.vhost)}


def alternate_of(exchange: Mapping[str, Any], policies: Mapping[str, Mapping[str, Any]] | None) -> str | None:
    """Return the alternate exchange of one that the management API shows: its argument's, else its policy's
    (rabbit_policy.erl, get_arg), which is shown by its name alone. None: it has none; empty: that is not
    known, as the `policies` are not."""
    found = mapping(exchange.get("arguments")).get("alternate-exchange")
    if found is None and exchange.get("policy"):
        if policies is None:
            return ""
        policy = policies.get(str(exchange["policy"]), {})
        found = mapping(policy.get("definition")).get("alternate-exchange")
    return None if found is None else str(found)


def _declared_arguments(asking: Questions, queue: str) -> tuple[dict[str, Any], dict[str, bool]] | None:
    """Return the arguments and flags that an existing queue was declared with; None where the right to ask is
    missing."""
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    flags = {"durable": True, "auto_delete": False, "exclusive": False}
    for _ in range(_MOST_DIFFERENCES):
        try:
            asking.queue(queue)
            asking.ask(spec.Queue.Declare(queue=queue, arguments=arguments, **flags))
        except Refused as refused:
            difference = _DIFFERENCE.search(refused.text) if refused.code == 406 else None
            if difference is None or not _answer(difference, arguments, flags):
                return None
        else:
            return arguments, flags
    return None


def _answer(difference: re.Match[str], arguments: dict[str, Any], flags: dict[str, bool]) -> bool:
    """Take over what the queue has; False when that changes nothing."""
    name, plain, value, kind = difference.group(1, "plain", "value", "type")
    if name in _FLAGS:
        before: object = flags[name]
        flags[name] = plain == "true"
        return flags[name] != before
    before = arguments.pop(name, None)
    text = value if plain is None else plain
    if text is not None:
        arguments[name] = _argument(text, kind)
    return arguments.get(name) != before


def _argument(text: str, kind: str | None) -> Any:
    if kind == "bool":
        return text == "true"
    return int(text) if kind not in (None, "longstr") and re.fullmatch(r"-?\d+", text) else text


def lasting_depth(ready: Callable[[], int], since: float | None = None) -> int:
    """Return the ready letters of a quorum queue, which says 0 until it has elected a leader, and until that
    has taken back what a consumer held that has just gone; so 0 is believed when it lasts. Of many queues
    that are asked in turn it has lasted `since` (by the monotonic clock) the first was."""
    passed = 0.0 if since is None else time.monotonic() - since
    return next((found for _ in patience.tries(patience.GIVEN_BACK - passed) if (found := ready())), 0)
