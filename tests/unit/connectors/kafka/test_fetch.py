"""Our own way to a broker: the login, and answers that are cut or no answers at all."""

import socket
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from support.brokers.hostile_kafka import compact
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import PATIENCE, SOON

from dlq.connectors.kafka.link import fetch
from dlq.connectors.kafka.link.connection import Access, Link, scram_proof, scram_signature
from dlq.connectors.kafka.link.fetch import Unreadable, headers_in, text
from dlq.core.errors import AccessDenied, BrokerError


def test_a_login_is_that_of_the_standards_example() -> None:
    """RFC 7677, section 3."""
    nonce = "rOprNGfwEbeRWgbNEkqO"
    told = f"r={nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    said = scram_proof("sha256", "pencil", f"n=user,r={nonce}", told)
    assert said == (
        f"c=biws,r={nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert scram_signature("sha256", "pencil", f"n=user,r={nonce}", told) == (
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )


@each_row("rounds", ["1", "4095", "-1", "2147483647", "9" * 30, "x"])
def test_a_login_of_too_few_or_too_many_rounds_gets_no_proof(rounds: str) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"rounds|invalid"):
        scram_proof("sha256", "pencil", "n=user,r=mine", f"r=mine,s=AA==,i={rounds}")
    assert time.monotonic() - began < SOON


def saying(*answers: bytes, rest: bytes = b"") -> Callable[[socket.socket], None]:
    """A broker that says these answers, one a question, and then `rest` for ever."""

    def behave(peer: socket.socket) -> None:
        for body in answers:
            peer.recv(2**16)
            peer.sendall(struct.pack(">ii", len(body) + 4, 1) + body)
        while peer.recv(2**16) if not rest else True:
            peer.sendall(rest)

    return behave


def challenge(text: str) -> bytes:
    return struct.pack(">hhi", 0, -1, len(text)) + text.encode()


TAKEN = struct.pack(">hi", 0, 0)
LOGINS: dict[str, tuple[bytes, ...]] = {
    "nothing": (b"",),
    "a byte": (b"\0",),
    "a challenge that is cut": (TAKEN, b"\0\0"),
    "a challenge that is no text": (TAKEN, struct.pack(">hhi", 0, -1, 2) + b"\xff\xfe"),
    "a length below zero": (TAKEN, struct.pack(">hhi", 0, -1, -9)),
    "another login": (TAKEN, challenge("r=yours,s=AA==,i=4096")),
    "rounds without end": (TAKEN, challenge("r=yours,s=AA==,i=2147483647")),
    "a refusal": (struct.pack(">hi", 33, 0),),
}


@each_row("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@each_row("what", LOGINS)
def test_a_server_that_means_harm_at_the_login_is_named_in_a_line(what: str, mechanism: str) -> None:
    with Server(saying(*LOGINS[what])) as server:
        try:
            Link(*server.place, Access(1.0, None, mechanism, "ann", "s3cret")).close()
            assert mechanism == "PLAIN"
        except BrokerError as error:
            assert server.address in str(error)  # noqa: PT017 - PLAIN takes what says nothing of the login
            assert "s3cret" not in str(error)  # noqa: PT017


def test_a_server_that_does_not_know_the_password_is_not_taken_for_the_broker() -> None:
    def behave(peer: socket.socket) -> None:
        peer.recv(2**16)
        peer.sendall(struct.pack(">ii", 4 + len(TAKEN), 1) + TAKEN)
        nonce = peer.recv(2**16).rpartition(b"r=")[2].decode()
        for said in (f"r={nonce}x,s=AAAA,i=4096", "v=AAAA"):
            peer.sendall(struct.pack(">ii", 4 + len(challenge(said)), 1) + challenge(said))
            peer.recv(2**16)

    with Server(behave) as server, pytest.raises(AccessDenied, match="does not know the password"):
        Link(*server.place, Access(PATIENCE, None, "SCRAM-SHA-256", "ann", "s3cret"))


@each_row("rest", [struct.pack(">i", 2**31 - 1), struct.pack(">i", -1), b"HTTP/1.1 400"])
def test_an_answer_that_is_too_long_is_refused_before_it_is_read(rest: bytes) -> None:
    with Server(saying(rest=rest)) as server:
        link = Link(*server.place, Access(PATIENCE))
        with pytest.raises(BrokerError, match=r"an answer of -?\d+ bytes|speaks HTTP"):
            link.ask(1, 4, b"")
        link.close()


def answer(records: bytes) -> bytes:
    head = struct.pack(">ihii", 0, 0, 0, 1) + text("t") + struct.pack(">iihqqqi", 1, 0, 0, 9, 9, 0, -1)
    return head + struct.pack(">i", len(records)) + records


def batches(packed: bytes, codec: int = 0, number: int = 1, count: int = 1) -> bytes:
    """An answer of so many batches, each with `count` records that are all of what is packed."""
    fields = (0, 49 + len(packed), 0, 2, 0, codec, 0, 0, 0, -1, -1, -1, count)
    return answer((struct.pack(">qiibIhiqqqhii", *fields) + packed) * number)


ENDLESS: dict[str, bytes] = {
    "numbers without end": b"\xff" * 2**20,
    "records of no length": b"\0" * 2**20,
    "a length that leads back": b"\x05" + bytes(2**20),
    "lengths below zero": b"\1" * 2**20,
    "headers without end": b"\x28" + b"\0\0\0\0\0" + b"\xfe\xff\xff\xff\x0f" + bytes(2**20),
}


@each_row("what", ENDLESS)
def test_a_batch_costs_what_its_length_allows(what: str) -> None:
    for packed, codec in ((ENDLESS[what], 0), (zlib.compress(ENDLESS[what], wbits=31), 1)):
        began = time.process_time()
        with pytest.raises(Unreadable):
            headers_in(batches(packed, codec, count=2**31 - 1))
        assert time.process_time() - began < 5


def a_record(headers: int, of: bytes) -> bytes:
    """One with so many headers."""
    content = bytes(3) + b"\1\1" + compact(2 * headers) + of * headers
    return compact(2 * len(content)) + content


@each_row("codec", [1, 2])
def test_many_batches_unpack_to_no_more_than_one_may(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "LARGEST", 2**20)
    plain = a_record(1, b"\2a" + compact(2 * 2**17) + bytes(2**17))
    blocks = pa.Codec("snappy").compress(plain, asbytes=True)
    framed = b"\x82SNAPPY\0" + bytes(8) + struct.pack(">i", len(blocks)) + blocks
    packed = zlib.compress(plain, wbits=31) if codec == 1 else framed
    assert len(headers_in(batches(packed, codec, 7))) == 1
    with pytest.raises(Unreadable, match="unpacks to more than"):
        headers_in(batches(packed, codec, 9))


def test_the_blocks_of_one_batch_unpack_to_no_more_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "LARGEST", 2**20)
    block = pa.Codec("snappy").compress(bytes(2**18), asbytes=True)
    framed = b"\x82SNAPPY\0" + bytes(8) + (struct.pack(">i", len(block)) + block) * 1000
    tracemalloc.start()
    with pytest.raises(Unreadable, match="unpacks to more than"):
        headers_in(batches(framed, 2))
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


def test_headers_are_counted_whatever_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MOST_HEADERS", 1000)
    assert len(headers_in(batches(a_record(500, b"\0\1"), number=2))[0]) == 500
    for records in (batches(a_record(500, b"\0\1"), number=3), batches(a_record(1001, b"\0\1"))):
        with pytest.raises(Unreadable, match="more than 1000 headers"):
            headers_in(records)


@each_row("attributes", range(8))
@each_row("records", [b"", b"\xff" * 40, b"\x7f" * 40, b"\x82SNAPPY\0" + b"\x7f" * 40])
def test_what_is_no_batch_is_no_crash(attributes: int, records: bytes) -> None:
    with pytest.raises(Unreadable):
        headers_in(batches(records, attributes, count=3))


def test_a_batch_that_is_cut_is_none() -> None:
    assert headers_in(answer(b"\0" * 61)) == {}
    with pytest.raises(Unreadable):
        headers_in(b"\0" * 5)
