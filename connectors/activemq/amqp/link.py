"""AMQP 1.0 to Artemis, which is spoken for the messages that came by it: only so they are read and sent
whole."""

from dataclasses import replace
from functools import partial

from dlq.connectors.activemq.link.refusals import login_hint
from dlq.connectors.activemq.link.sockets import (
    Address,
    amqp_address_of,
    first_that_answers,
    open_socket,
    password_for,
)
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.amqp10.link.session import Login, Session
from dlq.connectors.base import Inspection
from dlq.connectors.net.links import LinkLostError
from dlq.core import errors
from dlq.core.text import for_terminal, shorten
from dlq.core.values import units

_HEARTBEAT = 60
_PROBE_SECONDS = 5.0
_MEANS: dict[str, type[errors.BrokerError]] = {
    "amqp:unauthorized-access": errors.AccessDenied,
    "amqp:not-found": errors.NotFound,
    "amqp:connection:forced": errors.ConnectionLost,
}


def open_session(broker: ActiveMQBroker) -> Session:
    """Return a session with the first address that answers. Raises BrokerError, ConfigError."""
    return opened_at(broker)[0]


def opened_at(broker: ActiveMQBroker) -> tuple[Session, str]:
    """Return the same, and its host and port."""
    address = amqp_address_of(broker)
    if address is None:
        raise errors.ConfigError(f"brokers.{broker.name} has no amqp_url; add it")
    found: list[tuple[Session, str]] = []
    first_that_answers(broker, address, lambda one: found.append(_log_in(broker, one)))
    return found[0]


def _log_in(broker: ActiveMQBroker, address: Address) -> tuple[Session, str]:
    connected, node = open_socket(broker, address)
    place = f"{broker.name} ({node})"
    patience = timeout = units.seconds(broker.timeout)
    if not broker.amqp_url:
        patience = min(patience, _PROBE_SECONDS)
    secret = password_for(broker, address.user) or ""
    properties = {"product": "dlq"}
    named_by = f"brokers.{broker.name}.{'amqp_url' if broker.amqp_url else 'openwire_url'}"
    login = Login(
        address.user, secret, address.hosts[0][0], _HEARTBEAT, properties, patience, timeout,
        address=node, named_by=named_by,
    )  # fmt: skip
    try:
        return Session(connected, login, partial(refusal, place, broker=broker)), node
    except LinkLostError as error:
        raise errors.ConnectionLost(f"{place}: no AMQP 1.0: {error}") from error


def refusal(place: str, condition: str, said: str, broker: ActiveMQBroker | None = None) -> errors.DlqError:
    """AMQP's name of an error, and its text, as one of our errors."""
    meaning = _MEANS.get(condition, errors.BrokerError)
    hint = "check user and password" if broker is None else login_hint(said, broker)
    hint = f"; {hint}" if condition == "amqp:unauthorized-access" else ""
    return meaning(f"{place}: {shorten(for_terminal(said or condition), 300)}{hint}")


class Amqp10:
    """Whether a broker speaks it where the configuration says, or may say; asked once."""

    def __init__(self, broker: ActiveMQBroker) -> None:
        self._broker = broker
        self._speaks: bool | None = None
        self.node = ""
        """The host and port that answered."""
        self.trouble = ""
        """Why not."""

    @property
    def is_spoken(self) -> bool:
        """Raises what keeps it from being spoken where `amqp_url` says that it is."""
        if self._speaks is None:
            self._speaks = self._probe()
        return self._speaks

    def _probe(self) -> bool:
        if amqp_address_of(self._broker) is None:
            self.trouble = "set amqp_url"
            return False
        try:
            session, self.node = opened_at(self._broker)
            session.close()
        except (errors.BrokerError, errors.Unreachable) as error:
            if self._broker.amqp_url:
                raise
            self.trouble = f"openwire_url does not speak it ({error}); set amqp_url"
            return False
        return True


_CHANGED = (
    "Messages that came by AMQP 1.0 are read as STOMP shows them, and would go back as other messages "
    "(types, ids and content types are lost), so a plan leaves them out as risky; those that STOMP cannot "
    "show stay in the queue: {}."
)


def with_amqp(found: Inspection, amqp: Amqp10) -> Inspection:
    """Return what `dlq doctor` says, and how messages that came by AMQP 1.0 are read and sent."""
    try:
        if amqp.is_spoken:
            told = f"by AMQP 1.0, to {amqp.node}"
            return replace(found, facts={**found.facts, "messages of AMQP 1.0": told})
    except errors.DlqError as error:
        return replace(found, warnings=[*found.warnings, f"Nothing would be pulled or sent: {error}."])
    return replace(found, warnings=[*found.warnings, _CHANGED.format(amqp.trouble)])
