"""What a broker's no means is decided by code, class or whole text, never by what is shown of it."""

from support.rows import each_row

from dlq.connectors.activemq.link.refusals import CommitFailed, RolledBack, refusal, thrown_by
from dlq.core.errors import AccessDenied, BrokerError, NotFound

LONG = "x" * 400


@each_row(("said", "thrown", "means"), [
    ("AMQ339013 Error committing 5", None, CommitFailed),
    (f"AMQ339013 {LONG}", None, CommitFailed),
    ("AMQ339016: no such queue AMQ339013", None, BrokerError),
    ("no such queue AMQ339013", None, BrokerError),
    ("disk of queue://marked rollback only failed", "java.io.IOException", BrokerError),
    ("/var/security/kahadb is full", "java.io.IOException", BrokerError),
    ("AMQ339001: Destination does not exist: q", None, NotFound),
    ("AMQ229032: User: dlq does not have permission='SEND'", None, AccessDenied),
    ("Transaction marked rollback only", "javax.jms.TransactionRolledBackException", RolledBack),
    ("it was undone", "jakarta.jms.TransactionRolledBackException", RolledBack),
    (f"{LONG} marked rollback only", None, RolledBack),
    ("Transaction marked rollback only", "javax.transaction.xa.XAException", RolledBack),
    ("User dlq is not authorized to write to: queue://q", None, AccessDenied),
    ("no", "java.lang.SecurityException", AccessDenied),
    ("no", "javax.jms.InvalidDestinationException", NotFound),
    ("AMQ123456 something", "java.lang.IllegalStateException", BrokerError),
    ("no reason given", None, BrokerError),
    ("", None, BrokerError),
])  # fmt: skip
def test_a_refusal_means(said: str, thrown: str | None, means: type[BrokerError]) -> None:
    found = refusal("shop (mq1:61613)", said, thrown)
    assert type(found) is means
    assert len(str(found)) <= 320


@each_row(("body", "thrown"), [
    (b"javax.jms.JMSException: no\r\n\tat org.apache.X", "javax.jms.JMSException"),
    (b"java.io.IOException\n\tat x", "java.io.IOException"),
    (b"java.io.EOFException", "java.io.EOFException"),
    (b"User dlq is not authorized to write to: queue://q", None),
    (b"see java.io.IOException: no", None),
    (b"", None),
])  # fmt: skip
def test_the_class_stands_at_the_beginning_of_a_stack_trace(body: bytes, thrown: str | None) -> None:
    assert thrown_by(body) == thrown
