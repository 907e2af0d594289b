"""Connecting to ActiveMQ: TLS, users, several addresses, and what is said when it fails."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from support.brokers.activemq.broker import ARTEMIS, CLASSIC, ActiveMq, broker_of
from support.brokers.activemq.fixtures import Place, certificate, settings_of
from support.ports import free_ports
from support.waiting import eventually

from dlq.connectors.activemq.openwire.send import OpenWireSender
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.activemq.stomp.link import Link
from dlq.core.errors import AccessDenied, ConnectionLost, Unreachable
from dlq.core.settings import Broker

pytestmark = pytest.mark.activemq
UNSAID = (
    r"is this the (STOMP|OpenWire) port, or are as many connections open as it takes "
    r"\(maximumConnections of Classic.*connectionsAllowed of Artemis' acceptor"
)
by_either = pytest.mark.parametrize(
    ("connect", "setting", "scheme"), [(Link, "url", "stomp"), (OpenWireSender, "openwire_url", "tcp")]
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[ActiveMq]:
    """A broker with a user and a TLS port, whose Jolokia executes nothing."""
    with_users = ActiveMq(CLASSIC[-1], "users", "reads")
    with_users.options += (f"tls={with_users.tls}",)
    certificate(with_users.folder / "keys.p12", with_users.folder / "ca.pem")
    with with_users as broker:
        yield broker


@pytest.fixture
def by_tls(guarded: ActiveMq) -> Broker:
    url = f"stomp+tls://dlq@127.0.0.1:{guarded.tls}"
    return replace(settings_of(guarded), url=url, ca_file=str(guarded.folder / "ca.pem"))


def test_tls_with_the_right_authority_connects_and_a_dead_first_address_does_not_matter(
    by_tls: Broker,
) -> None:
    [dead] = free_ports(1)
    several = replace(by_tls, url=by_tls.url.replace("127.0.0.1", f"127.0.0.1:{dead},127.0.0.1"))
    link = Link(several)
    link.ping()
    assert link.version == CLASSIC[-1]
    link.close()


def test_a_wrong_password_is_access_denied_and_shown_nowhere(
    guarded: ActiveMq, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(guarded)
    monkeypatch.setitem(os.environ, settings.password_env or "", "wr0ng")
    with pytest.raises(AccessDenied, match="check user and password") as refused:
        Link(settings)
    assert "wr0ng" not in str(refused.value)


def test_nobody_at_any_address_is_unreachable(by_tls: Broker) -> None:
    [dead] = free_ports(1)
    with pytest.raises(Unreachable, match=f"127.0.0.1:{dead}.*refused"):
        Link(replace(by_tls, url=f"stomp://dlq@127.0.0.1:{dead}"))


@by_either
def test_an_end_before_a_word_was_said_may_be_the_wrong_port_or_one_connection_too_many(
    by_tls: Broker, connect: Callable[[Broker], object], setting: str, scheme: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hangs_up = threading.Thread(target=lambda: listener.accept()[0].close())
        hangs_up.start()
        wrong: Any = {setting: f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"}
        with pytest.raises(ConnectionLost, match=rf"the connection ended: .*; {UNSAID}"):
            connect(replace(by_tls, **wrong))
        hangs_up.join()


@pytest.fixture(scope="module")
def narrow() -> Iterator[ActiveMq]:
    """Artemis that allows one of its users one session."""
    broker = broker_of(ARTEMIS)
    file = broker.folder / "instance" / "etc" / "broker.xml"
    limit = "<max-connections>1</max-connections></resource-limit-setting></resource-limit-settings>"
    limits = f'<resource-limit-settings><resource-limit-setting match="reader">{limit}<security-settings>'
    file.write_text(file.read_text().replace("<security-settings>", limits, 1))
    with broker:
        yield broker


def linked(settings: Broker) -> Link | None:
    """A link, once Artemis has ended the session of the one before."""
    with suppress(AccessDenied):
        return Link(settings)
    return None


@by_either
def test_a_user_of_artemis_who_may_have_no_more_sessions_is_told_the_setting(
    narrow: ActiveMq,
    connect: Callable[[Broker], Any],
    setting: str,
    scheme: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = replace(settings_of(narrow), url=narrow.url.replace("admin@", "reader@"))
    monkeypatch.setitem(os.environ, settings.password_env or "", "reads")
    wanted: Any = {setting: f"{scheme}://127.0.0.1:{narrow.stomp}"} if setting != "url" else {}
    first = eventually(lambda: linked(settings))
    with pytest.raises(AccessDenied, match=r"session.*raise max-sessions"):
        connect(replace(settings, **wanted))
    first.close()


def test_a_password_with_an_outer_blank_is_named_where_it_is_refused(
    guarded: ActiveMq, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(guarded)
    openwire = replace(settings, openwire_url=f"tcp://127.0.0.1:{guarded.openwire}")
    for wrong in ("right ", "\tright"):
        monkeypatch.setitem(os.environ, settings.password_env or "", wrong)
        with pytest.raises(AccessDenied, match=r"password_env gives begins or ends with a blank"):
            OpenWireSender(openwire)
        Link(settings).close()  # Classic takes outer blanks away from a login by STOMP
    monkeypatch.setitem(os.environ, settings.password_env or "", "wrong ")
    with pytest.raises(AccessDenied, match=r"password_env gives begins or ends with a blank"):
        Link(settings)
    monkeypatch.setitem(os.environ, settings.password_env or "", "right\n")
    Link(settings).close()


def test_details_that_jolokia_may_not_tell_are_an_error_and_the_letter_stays(guarded: ActiveMq) -> None:
    settings = settings_of(guarded)
    place = Place(guarded, settings, ActiveMQConnector(settings), "letters.detailed")
    place.send(b"of a group", JMSXGroupID="g")
    with pytest.raises(AccessDenied, match="forbids getMessage, which jolokia_details needs"):
        place.by(jolokia_details=True).drain()
    assert [one.body for one in place.drain()] == [b"of a group"]
