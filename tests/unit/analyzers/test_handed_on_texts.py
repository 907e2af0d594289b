"""ActiveMQ's texts as people hand them on: copied with their name, quoted, wrapped by pages and mails, and cut."""

from collections.abc import Callable, Mapping
from textwrap import wrap

import pytest
from support.analyzers.activemq_texts import JMS, TEXTS, THROWABLE
from support.analyzers.letters import imported
from support.rows import each_row

from dlq.analyzers.rules import Facts, Verdict, judge

Way = Callable[[str], str]
WAYS: Mapping[str, Way] = {
    "without its class": lambda text: text.removeprefix(THROWABLE).removeprefix(JMS),
    "under a short class": lambda text: text.replace(THROWABLE, "Throwable: ", 1),
    "under a class of .NET": lambda text: text.replace(THROWABLE, "Apache.NMS.NMSException: ", 1),
    "under a class of C++": lambda text: text.replace(THROWABLE, "cms::CMSException: ", 1),
    "with blanks around": lambda text: f"\n {text}\n",
    "under two classes": lambda text: text.replace(THROWABLE, JMS + THROWABLE, 1),
    "wrapped": lambda text: "\n    ".join(wrap(text, 60)),
    "wrapped by a program": lambda text: r"\n".join(wrap(text, 60)),
    "wrapped by a page": lambda text: "<br/>".join(wrap(text, 60)),
    "quoted in a mail": lambda text: "> " + "\n> ".join(wrap(text, 60)),
    "quoted": lambda text: f'"{text}"',
    "quoted in German": lambda text: f"„{text}“",
    "bold": lambda text: f"**{text}**",
    "with blanks of a word processor": lambda text: (
        text.partition("cause:")[0].replace(" ", "\u00a0") + "".join(text.partition("cause:")[1:])
    ),
    "with its name": lambda text: f"dlqDeliveryFailureCause: {text}",
    "under a heading": lambda text: f"Failure cause: {text}",
    "as a cause": lambda text: f"Caused by: {text}",
    "with a stack": lambda text: (f"{text}\n\tat org.apache.activemq.ActiveMQMessageConsumer.rollback(X.java:1)"),
}  # fmt: skip


def verdict(text: str) -> Verdict:
    headers = {"original-destination": "/queue/orders", "dlqDeliveryFailureCause": text}
    return judge(imported({"broker_kind": "activemq", "queue": "ActiveMQ.DLQ", "headers": headers}), Facts())


@each_row("way", WAYS.values(), ids=WAYS)
def test_a_text_means_the_same_however_it_is_handed_on(way: Way) -> None:
    meant = {text: verdict(text) for text, _ in TEXTS}
    found = {text: verdict(way(text)) for text in meant}
    assert {text: (one.cause, one.attempts) for text, one in found.items()} == {
        text: (one.cause, one.attempts) for text, one in meant.items()
    }


@each_row("way", [*(lambda text, n=n: f"{text[:n]}..." for n in (100, 120)), lambda text: f"{text} [more]"])
def test_a_text_that_is_cut_behind_its_telling_words_or_goes_on_means_the_same(way: Way) -> None:
    texts = [text for text, _ in TEXTS if not text.endswith("Message discarded")]
    assert [verdict(way(text)).cause for text in texts] == [verdict(text).cause for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        "Throwable: something that no client says", "the cause is not known", "Caused by: somebody",
        THROWABLE + "Message discarded by the application", "Failure cause:",
    ],
)  # fmt: skip
def test_a_text_that_nobody_writes_proves_nothing(text: str) -> None:
    assert verdict(text).cause == "unknown"


def test_the_exception_that_a_text_ends_in_stays_as_it_is() -> None:
    cause = r"cause:java.io.FileNotFoundException: C:\new\file (2)"
    found = verdict(f"{THROWABLE}Delivery[2] exceeds redelivery policy limit:RedeliveryPolicy {{}}, {cause}")
    assert (found.exception_class, found.exception_message) == ("java.io.FileNotFoundException", r"C:\new\file (2)")  # fmt: skip
