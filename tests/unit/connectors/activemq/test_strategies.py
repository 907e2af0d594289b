"""Where Classic's dead letters lead, by an activemq.xml: what the exam on real brokers does not draw."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.rows import each_row

from dlq.connectors.activemq.look.jolokia import QueueFacts
from dlq.connectors.activemq.look.strategies import lives_in, load, predict
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.base import Fate
from dlq.core.errors import ConfigError

FRAME = """<beans xmlns="http://www.springframework.org/schema/beans"><!-- as ActiveMQ comes -->
<broker xmlns="http://activemq.apache.org/schema/core" brokerName="x"><destinationPolicy><policyMap>
<policyEntries><policyEntry topic=">"/>{}</policyEntries></policyMap></destinationPolicy><plugins>{}</plugins>
</broker></beans>"""
ENTRY = '<policyEntry queue="orders"><deadLetterStrategy>{}</deadLetterStrategy></policyEntry>'
SHARED = ENTRY.format("<sharedDeadLetterStrategy {}/>")
LOOSE = FRAME.format("", '<discardingDLQBrokerPlugin dropAll="false" dropOnly="*"/>')
AT_DLQ = ("ActiveMQ.DLQ",)


def fates(
    path: Path,
    entries: str,
    plugins: str = "",
    queues: Mapping[str, int] | None = None,
    frame: str = FRAME,
) -> dict[str, Fate]:
    """Death -> its fate in orders; the queues' consumers."""
    path.write_text(frame.format(entries, plugins))
    facts = {
        name: QueueFacts(0, consumers, 0, {}) for name, consumers in {"orders": 0, **(queues or {})}.items()
    }
    return {one.death: one for one in predict(load(str(path), "activemq_xml"), facts) if one.name == "orders"}


@pytest.fixture
def xml(tmp_path: Path) -> Path:
    return tmp_path / "activemq.xml"


REJECTS = {
    "nothing said": ("", "", "kept", AT_DLQ, "one that is not persistent is lost"),
    "saved": (SHARED.format('processNonPersistent="true"'), "", "kept", AT_DLQ, ""),
    "nested": (
        ENTRY.format(
            '<sharedDeadLetterStrategy><deadLetterQueue><queue physicalName="q"/></deadLetterQueue>'
            "</sharedDeadLetterStrategy>"
        ),
        "", "kept", ("q",), "",
    ),
    "a topic": (SHARED.format('deadLetterQueue="topic://t"'), "", "unknown", (), "subscribe to it durably"),
    "filled in at the start": (SHARED.format('deadLetterQueue="${dlq}"'), "", "unknown", (), "fills in"),
    "a class of its own": (ENTRY.format('<bean class="x"/>'), "", "unknown", (), "is bean, which nobody"),
    "a queue elsewhere": (SHARED.format('deadLetterQueue="#q"'), "", "unknown", (), "lies elsewhere"),
    "nested elsewhere": (
        ENTRY.format(
            '<sharedDeadLetterStrategy><deadLetterQueue><ref bean="q"/></deadLetterQueue>'
            "</sharedDeadLetterStrategy>"
        ),
        "", "unknown", (), "lies elsewhere",
    ),
    "an entry elsewhere": ('<ref bean="x"/>', "", "unknown", (), "policies that lie elsewhere"),
    "a plugin elsewhere": ("", '<ref bean="x"/>', "unknown", (), "a plugin of its own"),
    "a plugin of its own": ("", '<bean class="x"/>', "unknown", (), "a plugin of its own"),
    "a plugin that drops all": ("", "<discardingDLQBrokerPlugin/>", "lost", (), "drops what dies in orders"),
    "one that redelivers": ("", '<redeliveryPlugin fallbackToDeadLetter="true"/>', "kept", AT_DLQ, ""),
    "and drops": ("", '<redeliveryPlugin fallbackToDeadLetter="false"/>', "unknown", (), "redeliveryPlugin"),
    "of two patterns": (
        '<policyEntry queue="orders.>"/><policyEntry queue=">" deadLetterStrategy="#mine"/>',
        "", "kept", AT_DLQ, "",
    ),
    "for more than a night": (SHARED.format('expiration="86400000"'), "", "kept", AT_DLQ, "it for 1d"),
    "for less": (SHARED.format('expiration="60000"'), "", "lost", (), "keeps it for 1m, and ActiveMQ.DLQ is"),
    "round for ever": (
        ENTRY.format('<individualDeadLetterStrategy queuePrefix="orders." expiration="9"/>')
        .replace('queue="orders"', 'queue="orders.&gt;"'),
        "", "unknown", (), "one dead-letter queue after another",
    ),
}  # fmt: skip


@each_row("entries, plugins, verdict, places, why", REJECTS.values(), REJECTS)
def test_a_reject(xml: Path, entries: str, plugins: str, verdict: str, places: object, why: str) -> None:
    found = fates(xml, entries, plugins)["reject"]
    assert (found.verdict, found.leads_to) == (verdict, places)
    assert why in found.why


@each_row("was, put", [
    ('brokerName="x"', 'destinationPolicy="#mine"'), ("<policyMap>", '<ref bean="mine"/><policyMap>'),
    ("<policyMap>", '<policyMap policyEntries="#mine">'), ("<policyMap>", '<policyMap defaultEntry="#mine">'),
    ("<policyMap>", '<policyMap><defaultEntry><bean class="x"/></defaultEntry>'),
])  # fmt: skip
def test_policies_that_lie_elsewhere_are_not_taken_for_none(xml: Path, was: str, put: str) -> None:
    found = fates(xml, "", frame=FRAME.replace(was, put))
    assert {one.verdict for one in found.values()} == {"unknown"}
    assert "policies that lie elsewhere" in found["reject"].why


def test_what_expires_is_told_apart(xml: Path) -> None:
    drops = SHARED.format('processExpired="false" deadLetterQueue="a&amp;b"')
    found = fates(xml, drops, '<redeliveryPlugin sendToDlqIfMaxRetriesExceeded="false"/>')
    assert {death: one.verdict for death, one in found.items()} == {
        "reject": "unknown", "delivery limit": "unknown", "expiry": "lost",
    }  # fmt: skip
    assert found["expiry"].fix == (
        '<sharedDeadLetterStrategy processExpired="true" deadLetterQueue="a&amp;b"/> as the '
        "deadLetterStrategy of orders in activemq.xml"
    )


MENDED = {
    "reject": ENTRY.format("<discarding/>"),
    "expiry": SHARED.format('processExpired="false"'),
    "delivery limit": ENTRY.format('<individualDeadLetterStrategy queuePrefix="d." expiration="9"/>')
    + SHARED.format('processExpired="false"').replace("orders", "d.orders"),
}


@each_row("death, entries", MENDED.items(), MENDED)
def test_the_element_that_is_told_keeps_it(xml: Path, death: str, entries: str) -> None:
    lost = fates(xml, entries)[death]
    element, _, place = lost.fix.partition(" as the ")
    assert (lost.verdict, place) == ("lost", "deadLetterStrategy of orders in activemq.xml")
    assert fates(xml, ENTRY.format(element))[death].verdict == "kept"


def test_a_dead_letter_queue_that_is_read_is_an_end(xml: Path) -> None:
    brief = SHARED.format('expiration="60000"')
    assert fates(xml, brief, queues={"ActiveMQ.DLQ": 1})["reject"].leads_to == AT_DLQ


@each_row(
    "text, says",
    [("<beans/>", "has no <broker>"), ("<be", "cannot be read"), (LOOSE, "read"), (None, "No such file")],
)
def test_a_file_that_says_nothing(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / f"{says[:3]}.xml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=rf"brokers.old.activemq_xml: .*{says}"):
        load(str(path), "brokers.old.activemq_xml")


@each_row("given, missing", [({}, "activemq_xml"), ({"activemq_xml": "/x"}, "jolokia_url")])
def test_what_is_missing_is_named(
    given: dict[str, str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq.connectors.activemq.plugin.connector._by_stomp", lambda _: ("activemq", "6.3.1"))
    connector = ActiveMQConnector(ActiveMQBroker("old", "activemq", url="stomp://127.0.0.1:1", **given))
    (fate,) = connector.coverage()
    assert (fate.verdict, fate.why) == ("unknown", f"its definitions cannot be seen without {missing}")
    assert fate.fix.startswith(f"[brokers.old] {missing} = ")


@each_row(("strategy", "queue", "seconds"), [
    ('<sharedDeadLetterStrategy expiration="60000"/>', "ActiveMQ.DLQ", [60]),
    ('<sharedDeadLetterStrategy expiration="60000" deadLetterQueue="q"/>', "q", [60]),
    ('<sharedDeadLetterStrategy expiration="60000" deadLetterQueue="q"/>', "ActiveMQ.DLQ", []),
    ('<sharedDeadLetterStrategy expiration="60000" deadLetterQueue="topic://q"/>', "q", []),
    ("<sharedDeadLetterStrategy/>", "ActiveMQ.DLQ", []),
    ('<individualDeadLetterStrategy expiration="500"/>', "ActiveMQ.DLQ.Queue.orders", [0.5]),
    ('<individualDeadLetterStrategy expiration="500"/>', "ActiveMQ.DLQ.Queue.bills", []),
    ('<individualDeadLetterStrategy expiration="500" queuePrefix="" queueSuffix=".d"/>', "orders.d", [0.5]),
    ('<discarding expiration="500"/>', "ActiveMQ.DLQ.Queue.orders", []),
])  # fmt: skip
def test_letters_expire_where_a_strategy_puts_them(
    strategy: str, queue: str, seconds: list[float], xml: Path
) -> None:
    xml.write_text(FRAME.format(ENTRY.format(strategy), ""))
    assert lives_in(load(str(xml), "activemq_xml"), queue) == seconds


def test_letters_of_a_queue_expire_as_its_closest_policy_says(xml: Path) -> None:
    apart = '<policyEntry queue="{}"><deadLetterStrategy><individualDeadLetterStrategy {}/>'
    apart += "</deadLetterStrategy></policyEntry>"
    entries = apart.format("&gt;", 'expiration="60000"') + apart.format("orders", "")
    xml.write_text(FRAME.format(entries, ""))
    known = load(str(xml), "activemq_xml")
    dead = "ActiveMQ.DLQ.Queue."
    assert (lives_in(known, f"{dead}orders"), lives_in(known, f"{dead}bills")) == ([], [60])
    unused = '<sharedDeadLetterStrategy expiration="60000"/>'
    default = f"</policyEntries><defaultEntry><policyEntry><deadLetterStrategy>{unused}</deadLetterStrategy>"
    default += "</policyEntry></defaultEntry>"
    xml.write_text(FRAME.replace("</policyEntries>", default).format(entries, ""))
    assert lives_in(load(str(xml), "activemq_xml"), "ActiveMQ.DLQ") == []
