"""Replays to Classic by OpenWire: what the broker's own clients see, and what is said when it cannot be."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.brokers.activemq.broker import CLASSIC, ActiveMq
from support.brokers.activemq.fixtures import (
    WAYS,
    Place,
    by_openwire,
    certificate,
    on_artemis,
    on_classic,
    on_newest,
    on_newest_classic,
)
from support.brokers.activemq.sending import outgoing, place_on, published, run_of, sent_back
from support.ports import free_ports
from support.rows import each_row
from support.sending_contract import proven

from dlq.connectors.activemq.openwire.send import OpenWireSender
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.base import Search, SendRequest, Target
from dlq.core.errors import AccessDenied, ConfigError, Unreachable

pytestmark = pytest.mark.activemq


@on_classic
def test_java_gets_back_what_java_sent_types_and_all(stomp: Place) -> None:
    stomp.java("ActiveMqTyped.java", "send", stomp.queue)
    before = stomp.shown("ActiveMqTyped.java", "show", stomp.queue)
    assert len(before) == 2
    stomp.java("ActiveMqTyped.java", "send", stomp.queue)
    sent_back(by_openwire(stomp), stomp.by(jolokia_details=True).drain(), stomp.back)
    assert stomp.shown("ActiveMqTyped.java", "show", stomp.back.name) == before


@on_artemis
def test_artemis_is_told_that_its_letters_come_by_stomp(stomp: Place) -> None:
    with pytest.raises(ConfigError, match=r"url: this is Artemis; write it like stomp://.* as openwire_url"):
        ActiveMQConnector(replace(stomp.settings, url=stomp.settings.url.replace("stomp:", "tcp:")))


@on_artemis
@pytest.mark.parametrize("named", ["replies", "queue://replies"])
def test_a_reply_goes_where_a_client_of_stomp_asked_for_it(stomp: Place, named: str) -> None:
    here = by_openwire(stomp)
    here.send(b"question", **{"reply-to": named})
    [letter] = sent_back(here, here.drain(), here.back)
    told = "its reply-to goes as queue://replies, which is what a consumer by STOMP sees"
    assert (told in here.connector.preview(letter).warnings) is (named == "replies")
    assert [r.headers["reply-to"] for r in stomp.drain(here.back.name)] == ["queue://replies"]


@on_newest
def test_the_time_of_sending_stays_but_by_stomp_to_artemis_where_the_plan_says_so(sender: Place) -> None:
    sender.send(b"x")
    [before] = sender.drain()
    time.sleep(0.01)
    [letter] = sent_back(sender, [before], sender.back)
    [after] = sender.drain(sender.back.name)
    told = any("takes no time by STOMP" in each for each in sender.connector.preview(letter).warnings)
    assert (after.published_at != before.published_at) is told


@on_newest_classic
def test_with_openwire_alone_letters_come_go_and_are_found(stomp: Place) -> None:
    alone = by_openwire_alone(stomp)
    assert (alone.connector.kind, alone.connector.version) == ("activemq", stomp.broker.version)
    stomp.send(*[b"%d" % n for n in range(450)])
    there = f"by OpenWire, to 127.0.0.1:{stomp.broker.openwire}"
    assert alone.connector.inspect(alone.request().source).facts["pulls and replays"] == there
    letters = outgoing(alone.drain(), Target("queue", f"{stomp.queue}.back"))
    answers, before = run_of(alone, stomp.queue, letters[:420])
    assert {sent.outcome for sent in answers} == {"confirmed"}
    for place in (alone, by_openwire(stomp), stomp):
        search = Search(stomp.queue, letters, 0, before)
        found = proven(lambda place=place, search=search: place.connector.find(search))
        assert [found[n] for n in range(450)] == ["sent"] * 420 + ["not_sent"] * 30
    alone.connector.forget(SendRequest(stomp.queue))
    assert set(alone.connector.find(Search(stomp.queue, letters, 0, before)).shown.values()) == {"unknown"}
    assert len(stomp.drain(f"{stomp.queue}.back")) == 420


def by_openwire_alone(place: Place, **changes: object) -> Place:
    """The same place, without any address for STOMP."""
    return place.by(url=f"tcp://127.0.0.1:{place.broker.openwire}", **changes)


@on_newest_classic
def test_what_openwire_alone_has_no_use_for_is_said(stomp: Place) -> None:
    for changes, said in (
        ({"openwire_url": "tcp://mq:61616"}, "url is of OpenWire, too; take openwire_url out"),
        ({"statistics_plugin": True}, "statistics_plugin asks by STOMP"),
    ):
        with pytest.raises(ConfigError, match=said):
            by_openwire_alone(stomp, **changes)


@pytest.fixture(scope="module", params=CLASSIC[-1:])
def guarded(request: pytest.FixtureRequest) -> Iterator[ActiveMq]:
    """A broker with a user who may write to letters.* and to markers, and a TLS port."""
    broker = ActiveMq(request.param, "users", "rights", "markers")
    broker.options += (f"openwire-tls={broker.openwire_tls}",)
    certificate(broker.folder / "keys.p12", broker.folder / "ca.pem")
    with broker:
        yield broker


@pytest.mark.parametrize("way", WAYS)
def test_only_letters_that_may_not_go_there_are_refused(guarded: ActiveMq, way: str) -> None:
    place = replace(WAYS[way](place_on(guarded)), queue=f"letters.from.{way}")
    place.send(*[b"%d" % n for n in range(250)])
    back, forbidden = Target("queue", f"letters.to.{way}"), Target("queue", "forbidden")
    letters = outgoing(place.drain(), back)
    denied = {130, 131, 140, 249}
    letters = [one._replace(target=forbidden) if one.number in denied else one for one in letters]
    sent = {s.number: s for s in published(place, f"plan-{way}", letters)}
    assert {n for n, s in sent.items() if s.outcome == "refused"} == denied
    assert "not authorized" in (sent[130].detail or "")
    assert {s.outcome for n, s in sent.items() if n not in denied} == {"confirmed"}
    arrived = sorted(int(r.body) for r in place.drain(back.name))
    assert arrived == [n for n in range(250) if n not in denied]


def test_letters_come_and_go_by_tls_and_an_unknown_authority_is_refused(guarded: ActiveMq) -> None:
    place = replace(by_openwire(place_on(guarded)), queue="letters.tls")
    place.send(b"a")
    by_tls, authority = f"ssl://127.0.0.1:{guarded.openwire_tls}", str(guarded.folder / "ca.pem")
    trusting = place.by(openwire_url=by_tls, ca_file=authority)
    sent_back(trusting, trusting.drain(), place.back)
    assert [r.body for r in place.drain(place.back.name)] == [b"a"]
    with pytest.raises(Unreachable, match=r"TLS failed: .*; is ca_file right"):
        trusting.by(ca_file=None).connector.publisher(SendRequest("tls", 10))
    with pytest.raises(AccessDenied, match=r"not authorized to read from: queue://forbidden"):
        place.by(jolokia_url=None).drain("forbidden")


def test_an_address_of_another_broker_is_refused_before_anything_is_sent(guarded: ActiveMq) -> None:
    with ActiveMq(guarded.version) as other:
        place = place_on(guarded).by(openwire_url=f"tcp://127.0.0.1:{other.openwire}")
        with pytest.raises(ConfigError, match=r"openwire_url: .* is another broker than .* of url"):
            place.connector.publisher(SendRequest("plan", 10))


@on_newest_classic
def test_doctor_says_why_nothing_would_be_pulled_or_sent(stomp: Place) -> None:
    stomp.send(b"a")
    nowhere = stomp.by(openwire_url=f"tcp://127.0.0.1:{free_ports(1)[0]}")
    said = nowhere.connector.inspect(stomp.request().source)
    assert "pulls and replays" not in said.facts
    assert any(warning.startswith("Nothing would be pulled or sent: ") for warning in said.warnings)


@each_row(("url", "said"), [
    ("stomp://mq:61616", "write it like tcp://host:61616"),
    ("tcp://", "write it like tcp://host:61616"),
    ("tcp://dlq@mq:61616", "names a user; the user of url is taken"),
    ("tcp://mq:x", "'mq:x' is no host:port"),
])  # fmt: skip
def test_an_address_that_is_none_is_said(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"brokers.legacy.openwire_url.*{said}"):
        OpenWireSender(ActiveMQBroker("legacy", "activemq", url="stomp://mq", openwire_url=url))
