"""What frameworks and hands wrote into a body is read in each of its forms; a hostile one costs little."""

import json
import time
from base64 import b64encode

from corpus.report import entries

from dlq.core.headers.envelopes import read_envelope, read_stamps, read_task

SYMFONY = (
    next(e for e in entries() if e.name == "Symfony Messenger, by PHP's serializer")
    .line["body_text"]
    .encode()
)
PLAIN = SYMFONY.replace(rb"\\", b"\1").replace(rb"\"", b'"').replace(rb"\0", b"\0").replace(b"\1", b"\\")
"""Without addslashes."""
MOST = 2**20
"""Bytes of a hostile body; a second for it is a thousand times what a letter may take."""


def test_stamps_are_read_with_slashes_without_them_and_as_base64() -> None:
    told = read_stamps(SYMFONY)
    assert told == (True, "DomainException", "card of thrown.plain is declined", 2)
    assert [read_stamps(body) for body in (PLAIN, b64encode(SYMFONY), b64encode(PLAIN))] == [told] * 3
    cut = read_stamps(SYMFONY[: SYMFONY.index(b"DelayStamp")])
    assert cut == (False, "DomainException", "card of thrown.plain is declined", None)
    assert [read_stamps(body) for body in (b"", b"O:36:", b"TzozNj!", b'O:5:"Order":0:{}')] == [None] * 4


def test_what_stands_in_the_message_is_no_stamp() -> None:
    stamps, end, message = PLAIN.partition(b"\0Symfony\\Component\\Messenger\\Envelope\0message")
    forged = message.replace(b"thrown.plain", stamps.replace(b"DomainException", b"ForgedException"))
    assert read_stamps(stamps + end + forged) == read_stamps(SYMFONY)


def test_hostile_bodies_cost_their_length_at_most() -> None:
    begin = PLAIN[: PLAIN.index(b"ErrorDetailsStamp")]
    stamp = (
        b's:67:"\0Symfony\\Component\\Messenger\\Stamp\\ErrorDetailsStamp\0exceptionMessage";s:999999999:"'
    )
    started = time.process_time()
    for body in (
        begin + stamp * (MOST // len(stamp)),
        begin + b's:67:"\0' * (MOST // 8),
        begin + b"\\" * MOST,
    ):
        assert read_stamps(body) is not None
    for body in (
        b'{"original":' * (MOST // 12),
        b'{"error":' + b"[" * MOST,
        b'{"originalTopic":"' + b"a" * 2 * MOST,
        b"{" + b'"error' * (MOST // 6),
        json.dumps({f"error{n}": {f"error{m}": "x" for m in range(50)} for n in range(500)}).encode(),
    ):
        assert read_envelope(body) is None
        assert read_task(body) is None
    assert time.process_time() - started < 3
