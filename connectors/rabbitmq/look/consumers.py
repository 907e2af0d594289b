"""Whether targets are there, and whether their letters are consumed.

A declare tells at once how many letters are ready, and nothing of those that consumers hold. The management
API counts acknowledgements, up to one interval of its statistics late.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dlq.connectors.base import Consumption, Gauge, Target, gauge_of
from dlq.connectors.net.web import whole
from dlq.connectors.rabbitmq.amqp091.link.questions import Questions, Refused, questions
from dlq.connectors.rabbitmq.look import receivers as consumers
from dlq.connectors.rabbitmq.look.management import Management, ManagementError, mapping
from dlq.connectors.rabbitmq.look.topology import SERVING, learn_apart, state_of
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.republish import address_of
from dlq.core.clock import now
from dlq.core.errors import DlqError, NodeDown, NotFound
from dlq.core.text import for_terminal

_INTERVAL = 5.0
"""Seconds between statistics where nothing else is configured (collect_statistics_interval)."""
_HOLDS = 600_000_000
"""Microseconds for which a queue counts as of the kind that it was."""
_FEW = 20
"""Queues that are asked for one by one; more by one list of all."""
_COLUMNS = (
    "name,type,state,leader,messages,message_bytes,message_stats,head_message_timestamp,exclusive,auto_delete"
)
_DONE = ("ack", "deliver_no_ack", "get_no_ack")


def consumption(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, Sequence[Consumption]]:
    """See `Connector.consumption`. An exchange's queues are known from the management API alone."""
    reached = receivers(broker, targets)
    names = {name for queues in reached.values() for name in queues}
    shown, _ = fetch_queues(broker, names)
    with questions(broker) as asking:
        looked = {
            name: one
            for name, one in _look(asking, names, shown)
            if isinstance(one, Consumption) and not _doubt(broker, one, shown.get(name, {}))
        }
    found = {to: [looked[name] for name in queues if name in looked] for to, queues in reached.items()}
    return {target: queues for target, queues in found.items() if queues}


def _doubt(broker: RabbitBroker, one: Consumption, shown: Mapping[str, Any]) -> str:
    """Return why a queue may not have said itself that nothing is there; empty: it has. The node says so,
    too, for a quorum queue that has no leader, and only the management API tells which it is."""
    if one.waiting or one.consumers:
        return ""
    name = for_terminal(one.receiver)
    if shown:
        state = state_of(shown)
        return "" if state in SERVING else f"{name} is {state}"
    is_classic = _kind_by_declares(broker, one.receiver, now() // _HOLDS) == "classic"
    return "" if is_classic else f"{name} may be without a leader, which only the management API shows"


@lru_cache(256)
def _kind_by_declares(broker: RabbitBroker, queue: str, _period: int) -> str | None:
    """Return it, asked once in ten minutes: each question is an error in the log of the node, and a queue may
    be made again as another kind."""
    return learn_apart(replace(broker, management_url=None), queue, "").kind


def list_queues(broker: RabbitBroker) -> Mapping[str, Mapping[str, Any]]:
    """Return all queues as the management API shows them. Raises ManagementError."""
    with closing(Management(broker)) as management:
        found = management.get_all("queues", management.vhost, columns=_COLUMNS)
        return {str(queue.get("name")): queue for queue in found}


def gauge(
    broker: RabbitBroker, names: Sequence[str], known: Mapping[str, Mapping[str, Any]] | None = None
) -> Gauge:
    """Return how many letters these queues have; `known`: as they are `listed`. Raises NotFound when one is
    not there (where they were listed: when none is), AccessDenied when another connection has it for itself,
    NodeDown when none can be asked.

    A quorum queue without a leader seems to be empty; there nobody's absence is proven either.
    """
    shown, trouble = (
        fetch_queues(broker, names) if known is None else ({one: known[one] for one in names}, "")
    )
    with questions(broker) as asking:
        looked = dict(_look(asking, names, shown))
    gone = sorted(name for name, one in looked.items() if isinstance(one, NotFound))
    if gone and (known is None or len(gone) == len(names)):
        raise NotFound(for_terminal(f"{broker.name}: there is no queue {', '.join(gone)}"))
    found = _drop_errors(looked.values())
    refusals = [one for one in looked.values() if isinstance(one, DlqError) and not isinstance(one, NotFound)]
    for error in refusals:
        if not (found and isinstance(error, NodeDown)):
            raise error
    filled = [shown.get(one.receiver, {}).get("head_message_timestamp") for one in found if one.waiting]
    moments = [moment * 1_000_000 for moment in map(whole, filled) if moment is not None]
    oldest = moments if len(moments) == len(filled) else []
    doubts = [doubt for one in found if (doubt := _doubt(broker, one, shown.get(one.receiver, {})))]
    if silent := [*map(str, refusals), *doubts]:
        note = "; ".join(filter(None, [f"{', '.join(silent)}: what lies there is not known", trouble]))
        return gauge_of(found, oldest)._replace(depth=None, consumers=None, note=note)
    return gauge_of(found, oldest)._replace(note=trouble)


def missing_targets(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, str]:
    """See `Connector.missing`. The default exchange is always there."""
    found: dict[Target, str] = {}
    with questions(broker) as asking:
        for target in targets:
            exchange, queue = address_of(target)
            try:
                if exchange:
                    asking.exchange(exchange)
                else:
                    asking.queue(queue)
            except Refused as refused:
                error = asking.translate(refused)
                if isinstance(error, NotFound):
                    what = f"exchange {exchange}" if exchange else f"queue {queue}"
                    found[target] = for_terminal(f"there is no {what}")
                elif isinstance(error, NodeDown):
                    found[target] = str(error)
    return found


def receivers(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, Sequence[str]]:
    """Return the queues that each target reaches; of an exchange only where the management API shows it."""
    queues = {target: [target.name] for target in targets if target.kind == "queue"}
    exchanges = [target for target in targets if target.kind != "queue"]
    try:
        return {**queues, **(consumers.consumers_of(broker, exchanges) if exchanges else {})}
    except ManagementError:
        return queues


def _look(
    asking: Questions, names: Iterable[str], shown: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Consumption | DlqError]]:
    """Yield each queue, or what the broker says instead."""
    for name in names:
        try:
            found = asking.queue(name)
        except Refused as refused:
            yield name, asking.translate(refused)
            continue
        told = shown.get(name, {})
        known = count_acknowledged(told)
        age = 0.0 if known is None else _INTERVAL
        lies = whole(told.get("messages"))
        yield name, Consumption(name, found.message_count, found.consumer_count, known, age, lies)


def _drop_errors(looked: Iterable[Consumption | DlqError]) -> list[Consumption]:
    return [one for one in looked if isinstance(one, Consumption)]


def fetch_queues(broker: RabbitBroker, names: Iterable[str]) -> tuple[Mapping[str, Mapping[str, Any]], str]:
    """Return the queues as the management API shows them; none, and why, where it does not answer."""
    if not broker.management_url:
        return {}, ""
    wanted = set(names)
    with closing(Management(broker)) as management:
        try:
            if len(wanted) <= _FEW:
                return {name: management.get("queues", management.vhost, name) or {} for name in wanted}, ""
            shown = list_queues(broker)
            return {name: shown.get(name, {}) for name in wanted}, ""
        except ManagementError as error:
            return {}, str(error)


def count_acknowledged(told: Mapping[str, Any]) -> int | None:
    """Return None where the management API counts nothing of a queue."""
    counts = mapping(told.get("message_stats"))
    return sum(whole(counts.get(done)) or 0 for done in _DONE) if "messages" in told else None
