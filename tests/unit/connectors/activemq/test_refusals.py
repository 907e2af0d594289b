"""What a broker's no means is decided by code, class or whole text, never by what is shown of it."""

import pytest

from dlq.connectors.activemq.refusals import IdUsedBefore, RolledBack, refusal
from dlq.core.errors import AccessDenied, BrokerError, NotFound

LONG = "x" * 400


@pytest.mark.parametrize(
    ("said", "thrown", "means"),
    [
        ("AMQ339013 Error committing 5", None, IdUsedBefore),
        (f"{LONG} AMQ339013", None, IdUsedBefore),
        ("AMQ339001: Destination does not exist: q", None, NotFound),
        ("AMQ229032: User: dlq does not have permission='SEND'", None, AccessDenied),
        ("Transaction marked rollback only", "javax.jms.TransactionRolledBackException", RolledBack),
        ("it was undone", "jakarta.jms.TransactionRolledBackException", RolledBack),
        (f"{LONG} marked rollback only", None, RolledBack),
        ("User dlq is not authorized to write to: queue://q", None, AccessDenied),
        ("no", "java.lang.SecurityException", AccessDenied),
        ("no", "javax.jms.InvalidDestinationException", NotFound),
        ("AMQ123456 something", "java.lang.IllegalStateException", BrokerError),
        ("no reason given", None, BrokerError),
        ("", None, BrokerError),
    ],
)
def test_a_refusal_means(said: str, thrown: str | None, means: type[BrokerError]) -> None:
    found = refusal("shop (mq1:61613)", said, thrown)
    assert type(found) is means
    assert len(str(found)) <= 320
