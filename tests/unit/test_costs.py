"""What strangers wrote costs no more to read or to show than its length allows: time and memory, for every
decoder, and for every way out.

A shape is what could cost more: what nests, repeats, promises or unpacks. Time is counted in rounds of a
plain loop, measured beside it, so that a slow machine changes nothing.
"""

import base64
import contextlib
import gc
import gzip
import io
import itertools
import json
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from random import Random
from typing import NamedTuple

import pytest
from rich.console import Console
from support.analyzers.letters import record

from dlq.analyzers import rules
from dlq.cli import tables
from dlq.cli.context import Context as CliContext
from dlq.connectors.activemq import republish
from dlq.connectors.activemq.openwire.codec import commands as openwire
from dlq.connectors.activemq.openwire.codec import messages
from dlq.connectors.activemq.records import frames as records
from dlq.connectors.activemq.records import openwire as openwire_records
from dlq.connectors.activemq.stomp import codec as stomp
from dlq.connectors.amqp10.codec import frames as amqp10_frames
from dlq.connectors.amqp10.codec import message, values
from dlq.connectors.jsonl import format as interchange
from dlq.connectors.jsonl.console_formats import printers
from dlq.connectors.kafka.link.fetch import headers_in
from dlq.connectors.kafka.records import header_texts, raw
from dlq.connectors.rabbitmq.amqp091.codec import table
from dlq.connectors.rabbitmq.records import amqp10, x_death
from dlq.connectors.rocketmq.link import lenient_json, remoting
from dlq.connectors.rocketmq.link.message import BATCH, V1, encode, expand, parse, parse_properties, split
from dlq.connectors.rocketmq.records import bodies
from dlq.core.brokers import resolve
from dlq.core.errors import DlqError
from dlq.core.headers.failure_headers import names_of_cuts, strip_failure
from dlq.core.keys import key_reader
from dlq.core.settings import Mask
from dlq.core.text import block_for_terminal, for_terminal
from dlq.replay.plans.deadlines import deadlines
from dlq.reports.formats import html, markdown
from dlq.reports.letters import body as bodies_shown
from dlq.reports.letters import letter_text, stack, unpacking
from dlq.reports.letters.masking import Masker
from dlq.web import agents, render

SMALL, SOME, MANY = 300, 15_000, 60_000
UNITS_A_BYTE = 400
"""A value of one byte is read, shown and written as JSON in a third of that."""
BYTES_A_BYTE, BYTES_ALWAYS = 1500, 12 * 2**20
"""Deflate makes 1032 bytes of one; a budget of 4 MiB is any letter's."""
GROWTH = 2.5
"""How much more than four times as much four times as many bytes may take."""
TRIES = 5
"""What costs too much does so each time; another process may take the caches or the clock once."""
Shape = Callable[[int], bytes]


def repeated(unit: bytes, before: bytes = b"", behind: bytes = b"") -> Shape:
    return lambda size: before + unit * max(1, (size - len(before) - len(behind)) // len(unit)) + behind


def nested(wrap: Callable[[bytes], bytes], inner: bytes, most: int = 10_000) -> Shape:
    """As many levels as fit."""

    def shape(size: int) -> bytes:
        data = inner
        for _ in range(most):
            if len(wrapped := wrap(data)) > size:
                break
            data = wrapped
        return data

    return shape


def within(wrap: Callable[[bytes], bytes], shape: Shape) -> Shape:
    return lambda size: wrap(shape(size))


def long_field(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack(">I", len(content)) + content


def block(content: bytes) -> bytes:
    return b"\x20\0" + long_field(b"", content)


def header(field: bytes) -> bytes:
    return block(b"\1h" + field)


def read_block(data: bytes) -> object:
    properties, headers = table.decode(data)
    return properties, table.stable(data, headers), x_death.deaths(headers.get("x-death", ""))


def in_array(data: bytes) -> bytes:
    return long_field(b"A", data)


TEXTS = {
    "Java's maps": repeated(b"a=[,", b"{", b"}"),
    "open maps": repeated(b"{a="),
    "Python's longs": repeated(b"1L 1"),
    "Python's dates": repeated(b"datetime.datetime(1, 1"),
    "brackets": repeated(b"["),
    "digits": repeated(b"9"),
    "signs": repeated(b"-"),
}


def large(code: int, count: int, content: bytes) -> bytes:
    return values.sized_32(code, len(content) + 4) + struct.pack(">I", count) + content


def of_nothing(count: int, code: bytes = b"\x41") -> bytes:
    """An array of so many elements that take no octets."""
    return large(0xF0, count, code)


def application(content: bytes) -> bytes:
    return values.described_value(message.APPLICATION, content)


def one_property(value: bytes) -> bytes:
    return application(large(0xD1, 2, values.string("k") + value))


def properties(count: int, pair: bytes) -> bytes:
    return application(large(0xD1, 2 * count, pair * count))


def read_message(data: bytes) -> object:
    found, _, is_encoded = message.split(data)
    parts = message.parts(found)
    return (
        amqp10.is_carried_by_0_9_1(parts, (4, 3, 6)),
        amqp10.headers_of(parts),
        amqp10.properties_of(parts, is_encoded),
        [amqp10.deaths(value) for _, value in parts.annotations],
        message.stable(found, lambda _name: False),
        message.to_send(found, lambda _name: False, {"n": "v"}),
    )


def read_amqp10_frame(data: bytes) -> object:
    reader = amqp10_frames.FrameReader()
    reader.feed(amqp10_frames.SASL_HEADER + amqp10_frames.frame(amqp10_frames.SASL_OUTCOME, [b"\x50\0"]))
    return reader.feed(amqp10_frames.AMQP_HEADER + amqp10_frames.frame(0x10, [data]))


def a_list(unit: bytes) -> Shape:
    return lambda size: large(0xD0, size // len(unit), unit * (size // len(unit)))


AMQP10: Mapping[str, Shape] = {
    "an array of nothing": lambda _size: of_nothing(60_000),
    "an array of lists": lambda _size: of_nothing(60_000, b"\x45"),
    "arrays of nothing": a_list(of_nothing(255)),
    "arrays that promise": a_list(of_nothing(5_000)),
    "nulls": a_list(b"\x40"),
    "empty lists": a_list(b"\x45"),
    "real numbers": a_list(b"\x82\x3f\xb9\x99\x99\x99\x99\x99\x9a"),
    "control characters": lambda size: large(0xD0, 1, values.string("\0" * size)),
    "no text": lambda size: large(0xD0, 1, values.binary(b"\xff" * size)),
    "keys in keys": nested(lambda data: large(0xD1, 2, data + b"\x40"), values.string('"'), 31),
    "descriptors in descriptors": nested(lambda data: b"\0" + data + b"\x40", values.string('"'), 31),
    "lists in lists": nested(lambda data: large(0xD0, 1, data), b"\x40"),
    "a large descriptor of each element": lambda size: large(
        0xF0, size // 2, b"\0" + values.string("d" * (size // 2)) + b"\x50" + bytes(size // 2)
    ),
}


def read_openwire_map(data: bytes) -> object:
    told = openwire_records.properties_of(an_openwire_message._replace(properties=data))
    return told, messages.readable(data, {"class": "map"}), openwire.map_for_artemis(data)


def read_openwire_content(data: bytes) -> object:
    packed = an_openwire_message._replace(content=data, compressed=True)
    letter = messages.Dispatch(1, messages.MAP, b"", packed)
    return openwire_records.frame_of(letter)


def read_openwire_frames(data: bytes) -> object:
    reader = openwire.Reader()
    reader.feed(openwire.greeting())
    reader.feed(data)
    return list(reader.dispatched)


def an_openwire_frame(content: bytes) -> bytes:
    return struct.pack(">iBi?", len(content) + 6, messages.DISPATCH, 0, False) + content


def one_entry(value: bytes) -> bytes:
    return b"\0\0\0\1\0\1k" + value


def one_text(data: bytes) -> bytes:
    return one_entry(b"\x0d" + struct.pack(">i", len(data)) + data)


an_openwire_message = messages.Message(
    *(0, False, None, None, None, None, None, None, None, 0, None, False, 0, 0, None, 0, None, None, None),
    *(None, None, False, 0, None, 0, None, False, False, None, 0, 0, False),
)
in_a_map, in_a_list = (lambda data: b"\x0b" + one_entry(data)), (lambda data: b"\x0c\0\0\0\1" + data)
OPENWIRE_MAPS: Mapping[str, Shape] = {
    "entries": lambda size: struct.pack(">i", size // 4) + b"\0\1k\0" * (size // 4),
    "maps in maps": lambda size: one_entry(nested(in_a_map, b"\0")(size)),
    "lists in lists": lambda size: one_entry(nested(in_a_list, b"\0", 31)(size)),
    "a large value far inside": lambda size: one_entry(
        nested(in_a_list, b"\x0d" + struct.pack(">i", size) + b"x" * size, 31)(2 * size)
    ),
    "nulls": lambda size: one_entry(b"\x0c" + struct.pack(">i", size) + bytes(size)),
    "a list that promises": lambda _size: one_entry(b"\x0c\x7f\xff\xff\xff"),
    "floats": lambda size: one_entry(
        b"\x0c" + struct.pack(">i", size // 5) + b"\x08\x3f\x8c\xcc\xcd" * (size // 5)
    ),
    "modified UTF": within(one_text, repeated(b"\xed\xa0\x80\xed\xb0\x80")),
    "no UTF": within(one_text, repeated(b"\xed")),
}
OPENWIRE_FRAMES: Mapping[str, Shape] = {
    "structures in one another": within(an_openwire_frame, repeated(b"\1\x6e\0")),
    "alike structures": within(an_openwire_frame, repeated(b"\1\x6e\0" * 7 + b"\0")),
    "small frames": repeated(an_openwire_frame(b"\0\0\0")),
}


def read_stomp(data: bytes) -> object:
    """In pieces, as they come from a socket."""
    reader, step = stomp.FrameReader("t"), max(1, len(data) // 64)
    found = [frame for at in range(0, len(data), step) for frame in reader.feed(data[at : at + step])]
    reader.feed(b"\0\nRECEIPT\nreceipt-id:t\n\n\0")
    return found, [stomp.headers_of(frame.head) for frame in found]


def read_head(data: bytes) -> object:
    return stomp.headers_of(data), records.stable_lines(data), list(records.by_kind([data, data[:-3]]))


STOMP_FRAMES: Mapping[str, Shape] = {
    "beginnings of frames": repeated(b"\0MESSAGE\n", b"MESSAGE\nsubscription:t\n\n"),
    "a beginning and no end": repeated(b"a", b"MESSAGE\nsubscription:t\n\n\0MESSAGE\n"),
    "a long head": lambda size: (
        b"MESSAGE\n" + b"a:b\n" * (size // 8) + b"content-length:9999999\n\n" + b"x" * (size // 2)
    ),
    "newlines": repeated(b"\n"),
    "NULs": repeated(b"\0", b"MESSAGE\nsubscription:t\n\n"),
    "small frames": repeated(b"MESSAGE\nsubscription:t\n\n\0\n"),
}
STOMP_HEADS: Mapping[str, Shape] = {
    "lines": repeated(b"a:b\n"),
    "different lines": lambda size: b"\n".join(b"%d:b" % n for n in range(size // 8)),
    "lengths": repeated(b"content-length:          \n"),
    "escapes": repeated(b"\\c\\n\\\\", b"a:"),
}


def stored(body: bytes, sys_flag: int = 0, properties: bytes = b"") -> bytes:
    plain = parse(_A_STORED_MESSAGE)
    return encode(plain._replace(body=body, sys_flag=sys_flag, properties=properties[:32_000]))


_A_STORED_MESSAGE = struct.pack(">iIiiiqqiq", 92, V1, 0, 0, 0, 1, 2, 0, 3) + bytes(8) + struct.pack(">q", 4)
_A_STORED_MESSAGE += bytes(8) + struct.pack(">iqi", 0, 0, 0) + b"\x01t" + b"\0\0"


def read_stored(data: bytes) -> object:
    found = [inner for one in split(data) for inner in expand(parse(one))]
    return found, [parse_properties(one.properties) for one in found]


def one_in_another(size: int) -> bytes:
    """Messages of a batch that each say that they are as long as what is left."""
    count = min(30_000, size // 20)
    inner = b"".join(struct.pack(">iiiii", 20, 0, 0, 0, 20 * (count - n) - 20) for n in range(count)) + bytes(
        2
    )
    return stored(inner, BATCH)


PACKINGS: Mapping[str, Shape] = {
    "zlib": lambda size: zlib.compress(bytes(900 * min(size, 2**14))),
    "LZ4": lambda size: bytes(import_module("lz4.frame").compress(bytes(250 * size))),
    "Zstandard": lambda size: bytes(import_module("zstandard").compress(bytes(2**14 * min(size, 2**14)))),
}


def json_header(data: bytes) -> bytes:
    document = b'{"code":0,"opaque":1,"flag":1,"extFields":{"a":%b}}' % data
    return struct.pack(">II", len(document) + 4, len(document)) + document


def binary_header(data: bytes) -> bytes:
    fields = struct.pack(">hbhiii", 0, 0, 0, 1, 1, 0) + struct.pack(">i", len(data)) + data
    return struct.pack(">II", len(fields) + 4, 1 << 24 | len(fields)) + fields


def read_remoting(data: bytes) -> object:
    return list(remoting.FrameReader().feed(data))


JSON: Mapping[str, Shape] = {
    "lists": nested(lambda data: b"[" + data + b"]", b"", 900),
    "too many lists": repeated(b"["),
    "objects": nested(lambda data: b'{"a":' + data + b"}", b"1", 900),
    "too many objects": repeated(b'{"a":'),
    "empty lists": repeated(b"[],", b"[", b"1]"),
    "names": lambda size: json.dumps({str(n): n for n in range(size // 16)}).encode(),
    "digits": repeated(b"9"),
    "numbers": repeated(b"9" * 4000 + b",", b"[", b"1]"),
    "exponents": repeated(b"1e999,", b"[", b"1]"),
    "escapes": repeated(b"\\u0000", b'"', b'"'),
    "half pairs": repeated(b"\\ud800", b'{"a":{"b":"', b'"}}'),
    "open strings": repeated(b'"a'),
    "JSON in JSON": nested(lambda data: json.dumps({"a": data.decode()}).encode(), b"1"),
}
LENIENT: Mapping[str, Shape] = {
    "keys in keys": nested(lambda data: b"{" + data + b":0}", b"1", 60),
    "numbers as keys": repeated(b"0:1,", b"{", b"0:1}"),
    "objects as keys": repeated(b"{0:1}:1,", b"{", b"0:1}"),
    **JSON,
}
read_key = key_reader("json:$.a")


PACKED: Mapping[str, Shape] = {
    "gzip of zeros": lambda size: gzip.compress(bytes(900 * min(size, 2**14)), mtime=0),
    "zlib of zeros": PACKINGS["zlib"],
    "short members": repeated(gzip.compress(b"", mtime=0)),
    "many members": repeated(gzip.compress(b"x" * 300, mtime=0)),
    "cut members": repeated(gzip.compress(b"x" * 300, mtime=0)[:-1]),
    "headers of gzip": repeated(b"\x1f\x8b\x08"),
}


def kafka_headers(unit: bytes) -> Shape:
    return lambda size: struct.pack(">BBqii", 1, 0, 0, -1, size // len(unit)) + unit * (size // len(unit))


def read_kafka(data: bytes) -> object:
    headers = raw.decode(data).headers
    return header_texts.texts_of(headers), header_texts.edit(data, lambda _name: False, {"n": "v"})


KAFKA: Mapping[str, Shape] = {
    "empty headers": kafka_headers(b"\0\0\0\0\0\0\0\0"),
    "null headers": kafka_headers(b"\xff" * 8),
    "one name": kafka_headers(b"\0\0\0\1a\0\0\0\1b"),
    "what promises": lambda _size: struct.pack(">BBqii", 1, 0, 0, -1, 2**31 - 1),
    "originals of originals": repeated(struct.pack(">BBqii", 1, raw.HAS_ORIGINAL, 0, -1, 0)),
}


def a_batch(records: bytes, codec: int = 0) -> bytes:
    """The answer to a fetch, with one batch that promises as many records as it can."""
    fields = (0, 49 + len(records), 0, 2, 0, codec, 0, 0, 0, -1, -1, -1, 2**31 - 1)
    data = struct.pack(">qiibIhiqqqhii", *fields) + records
    head = struct.pack(">ihiih", 0, 0, 0, 1, 1) + b"t" + struct.pack(">iihqqqi", 1, 0, 0, 9, 9, 0, -1)
    return head + struct.pack(">i", len(data)) + data


KAFKA_BATCHES: Mapping[str, Shape] = {
    "numbers without end": within(a_batch, repeated(b"\xff")),
    "records of no length": within(a_batch, repeated(b"\0")),
    "small records": within(a_batch, repeated(b"\x0c\0\0\0\1\1\0")),
    "headers": lambda size: a_batch(
        b"\xfe\xff\xff\xff\x0f\0\0\0\1\1\xfe\xff\xff\xff\x0f" + b"\2a\1" * (size // 3)
    ),
    "small blocks of snappy": within(
        lambda data: a_batch(b"\x82SNAPPY\0" + bytes(8) + data, 2), repeated(b"\0\0\0\1\0")
    ),
}
PRINTS: Mapping[str, Shape] = {
    "damaged objects": repeated(b'{"a"\n'),
    "objects": repeated(b'{"payload": "x"}\n'),
    "arrays in arrays": repeated(b"["),
    "RocketMQ's messages": repeated(b"MessageExt [queueId="),
    "RocketMQ's properties": repeated(b"a=b, ", b"MessageExt [queueId=0, properties={"),
    "braces": repeated(b"{"),
}


def read_prints(data: bytes) -> object:
    return [resolve(reader)(data.decode("utf-8", "replace")) for reader in printers().values()]


def read_line(data: bytes) -> object:
    document = interchange.parse_line(b'{"broker_kind":"rabbitmq","headers":{"a":%b}}' % data)
    kept = interchange.record_of(document, "s", "b", "1", read_key)
    return json.dumps(interchange.line_of(kept))


def judge(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    letter = record(headers={"x-exception-stacktrace": text, "x-death": text}, body=data, failure_text=text)
    shown_letter = {"headers": letter.headers, "properties": {}, "failure_text": text}
    return rules.judge(letter, rules.Facts()), stack.trace_of(shown_letter)


STACKS: Mapping[str, Shape] = {
    "frames": repeated(b"\n\tat a.b.C(D.java:1)", b"x.YException: z"),
    "causes": repeated(b"\nCaused by: a.B: c"),
    "tracebacks": repeated(
        b'\n  File "/a/b.py", line 1, in c\n    d()', b"Traceback (most recent call last):"
    ),
    "chained": repeated(b"\n\nDuring handling of the above exception, another exception occurred:\n\n"),
    "inner ones": repeated(b" ---> A: b"),
    "one line": repeated(b"a.b: "),
    **TEXTS,
    **JSON,
}


each_time = itertools.count()


def read_names(data: bytes) -> object:
    """Names that are new each time: those that were read before are remembered."""
    name = f"{data.decode()}{next(each_time)}"
    letter = record(headers={name: "1", "expires": name}, body=json.dumps({name: 1, "ttl": name}).encode())
    return (
        list(deadlines(letter, ())), strip_failure(letter.headers), rules.judge(letter, rules.Facts()),
        names_of_cuts((name,)),
    )  # fmt: skip


NAMES: Mapping[str, Shape] = {
    "a word": repeated(b"a"),
    "words": repeated(b"a_"),
    "capitals": repeated(b"A"),
    "words of the vocabulary": repeated(b"dead-letter-error-"),
    "prefixes": repeated(b"x-"),
    "dots": repeated(b"a."),
    "digits": repeated(b"9"),
    "what Camel writes": repeated(b"_HYPHEN_"),
}


def mask(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    masker = Masker(Mask(("json:$.card.number", "header:x-*")))
    return masker.document({"body_base64": base64.b64encode(data).decode(), "headers": {"a": text}})


ENCODED: Mapping[str, Shape] = {
    "base64 of base64": nested(base64.b64encode, b"jane@example."),
    "hexadecimal of it": nested(lambda data: data.hex().encode(), b"jane@example."),
    "percent of percent": nested(lambda data: data.replace(b"%", b"%25"), b"%" * 2, 10_000),
    "percent of percent in lines": repeated(b"%" + b"25" * 20 + b"\n"),
    "percent of percent in short lines": repeated(b"%252525\n"),
    "escapes of escapes": repeated(b"\\"),
    "entities": repeated(b"&amp;"),
    "soft breaks": repeated(b"=\n"),
    "signs of an address": repeated(b"a@"),
    "names": repeated(b"OrderServiceImplementation "),
    "ids in lines": repeated(b"a=5f2c9ab1d07e4c3f8a6b0d1e2f3a4b5c b=9ab1d07e4c3f8a6b\n"),
    "random letters": lambda size: base64.b64encode(Random(1).randbytes(size)),
    "a line each": lambda size: b"\n".join([b"amFuZUBleGFtcGxlLmNvbQ=="] * (size // 25)),
    "JSON in lines": repeated(b'{"a":1}\n'),
    "torn JSON in lines": repeated(b'{"a":"b"\n'),
    "one letter each line": repeated(b"a\n"),
    "what NFKC makes longer": repeated("\ufdfa".encode()),
    "zeros": repeated(b"\0"),
    "labels of a domain": repeated(b"a.", b"a @ "),
    "blanks around signs": repeated(b"a @ "),
    "quoted names": repeated(b'"a'),
    "parts of base64": repeated(b"amFuZUBl."),
    "escapes of CSS": repeated(b"\\5c "),
    "escapes of CSS that are longer": repeated(b"\\00005c"),
    "byte entities": repeated(b"&#120;"),
    "long entities": repeated(b"0", b"&#"),
    "groups of four": repeated(b"4111:"),
    "digits": repeated(b"4"),
    "digits and letters": repeated(b"4111111111111111a"),
    "secrets": repeated(b"password"),
    "secrets and blanks": repeated(b" ", b"password:"),
    "secrets and brackets": repeated(b"password:[["),
    "users of URLs": repeated(b"://a:"),
    "base32hex": repeated(b"0V"),
}


def show(data: bytes) -> object:
    """By every way that a text takes to somebody's eyes, but for masking."""
    text = data.decode("utf-8", "replace")
    document = {"body": text, "key": text, "headers": {"a": text}}
    console = Console(width=80, force_terminal=True, file=io.StringIO())
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")):
        for output in ("csv", "jsonl"):
            CliContext(output_flag=output).emit_rows(["a", "b"], [[text, document]])
    tables.draw(console, ["a", "b", "when"], [[for_terminal(each) for each in (text, "b", text)]])
    letter_text._print_indented(console, letter_text._pairs({"a": text}) or [])
    ways = (
        letter_text._trace, block_for_terminal, markdown.escape, lambda text: markdown.fence([text]),
        lambda _: html.script_data(html.visible(document)), lambda _: agents.cut(document),
        render._lines, render._show, render._exact,
    )  # fmt: skip
    return [way(text) for way in ways]


SHOWN: Mapping[str, Shape] = {
    "line breaks": repeated(b"\n"),
    "separators, blanks and quotes": repeated(b"; \"'|\t"),
    "blanks": repeated(b" "),
    "signs of formulas": repeated(b"=-+@\n"),
    "control characters": repeated(b"\x1b"),
    "what nobody sees": repeated("\ufe0f\u200d".encode()),
    "markup": repeated(b"`_@a<"),
    "wide signs": repeated("字".encode()),
}


class Decoder(NamedTuple):
    read: Callable[[bytes], object]
    shapes: Mapping[str, Shape]
    times: float = 1
    """How much longer its inputs must be to show what they cost; what is slow shows it of short ones."""
    units: int = UNITS_A_BYTE


DECODERS: Mapping[str, Decoder] = {
    "AMQP tables": Decoder(read_block, {
        "names": within(block, repeated(b"\1aV")),
        "different names": lambda size: block(b"".join(b"\x08%08dV" % n for n in range(size // 10))),
        "void": within(header, within(in_array, repeated(b"V"))),
        "empty tables": within(header, within(in_array, repeated(b"F\0\0\0\0"))),
        "decimals": within(header, within(in_array, repeated(b"D\xff\0\0\0\1"))),
        "arrays in arrays": within(header, nested(in_array, b"V")),
        "tables in tables": within(header, nested(lambda data: long_field(b"F", b"\1k" + data), b"V")),
        "a large value far inside": lambda size: header(
            nested(in_array, long_field(b"S", b"x" * size), 31)(2 * size)
        ),
        "no text": lambda size: header(long_field(b"S", b"\xff" * size)),
        **{
            name: within(lambda text: block(b"\7x-death" + long_field(b"S", text)), shape)
            for name, shape in TEXTS.items()
        },
    }),
    "AMQP 1.0 properties": Decoder(read_message, {
        "properties": lambda size: properties(size // 5, values.string("nn") + b"\x40"),
        "arrays that promise": lambda size: properties(size // 12, values.string("k") + of_nothing(5_000)),
        "sections again and again": repeated(application(large(0xD1, 2, b"\xa1\1k" + of_nothing(1000)))),
        "keys in keys": lambda size: properties(1, AMQP10["keys in keys"](size) + b"\x40"),
        **{name: within(one_property, shape) for name, shape in AMQP10.items()},
    }),
    "AMQP 1.0 bodies": Decoder(lambda data: amqp10.readable(
        values.described_value(message.VALUE, data), {"type": amqp10.ENCODED_BODY}
    ), AMQP10),
    "AMQP 1.0 frames": Decoder(read_amqp10_frame, AMQP10),
    "AMQP 1.0 in ActiveMQ": Decoder(
        republish.without_expiry,
        {"descriptors": repeated(b"\0", b"\0S\x70"), "lists": repeated(b"\0S\x70\x45")},
    ),
    "OpenWire maps": Decoder(read_openwire_map, OPENWIRE_MAPS),
    "OpenWire streams": Decoder(
        lambda data: messages.readable(data, {"class": "stream"}),
        {"nulls": repeated(b"\0"), "lists": repeated(b"\x0c\0\0\0\0")},
    ),
    "OpenWire content": Decoder(read_openwire_content, {"zlib of zeros": PACKED["zlib of zeros"]}),
    "OpenWire frames": Decoder(read_openwire_frames, OPENWIRE_FRAMES),
    "STOMP frames": Decoder(read_stomp, STOMP_FRAMES),
    "STOMP heads": Decoder(read_head, STOMP_HEADS),
    "RocketMQ messages": Decoder(read_stored, {
        "one in another": one_in_another,
        "messages": repeated(stored(b"")),
        "properties": lambda size: stored(b"", properties=repeated(b"\1\2")(size)),
        "names": lambda size: stored(b"", properties=repeated(b"a")(size)),
        "a packed batch": lambda size: stored(zlib.compress(bytes(900 * min(size, 2**14))), BATCH | 1),
    }, times=8),
    **{
        f"RocketMQ {name}": Decoder(partial(bodies.plain_body, sys_flag=1 | kind << 8), {"zeros": zeros})
        for kind, (name, zeros) in enumerate(PACKINGS.items())
    },
    "remoting in JSON": Decoder(
        read_remoting, {name: within(json_header, shape) for name, shape in LENIENT.items()},
    ),
    "remoting in binary": Decoder(read_remoting, {
        "fields": within(binary_header, repeated(bytes(6))),
        "a field": within(binary_header, repeated(b"\0\1a\0\0\0\1b")),
    }),
    "answers in JSON": Decoder(lambda data: lenient_json.loads(data.decode()), LENIENT),
    "JSON of bodies": Decoder(lambda data: read_key(None, {}, {}, b'{"a":' + data + b"}"), JSON),
    "lines": Decoder(read_line, JSON),
    "unpacked bodies": Decoder(lambda data: sum(map(len, unpacking.pieces(data, "gzip"))), PACKED, times=32),
    "shown bodies": Decoder(bodies_shown.preview, {**PACKED, **JSON, "bytes": repeated(b"\0\xff")}),
    "Kafka batches": Decoder(headers_in, KAFKA_BATCHES),
    "prints": Decoder(read_prints, {**PRINTS, **JSON}, units=6 * UNITS_A_BYTE),
    "Kafka records": Decoder(read_kafka, KAFKA),
    "errors": Decoder(judge, STACKS),
    "names": Decoder(read_names, NAMES),
    "outputs": Decoder(show, SHOWN, times=0.25, units=16 * UNITS_A_BYTE),
    "masking": Decoder(mask, {**ENCODED, **PACKED, **JSON, **STACKS}, times=0.25, units=6 * UNITS_A_BYTE),
}  # fmt: skip
EXPECTED = (ValueError, DlqError)


def seconds(decoder: Decoder, data: bytes) -> float:
    gc.disable()  # it would look through all that the other tests of this process have left
    began = time.thread_time()
    try:
        with contextlib.suppress(*EXPECTED):
            decoder.read(data)
        return time.thread_time() - began
    finally:
        gc.enable()


def unit(size: int) -> float:
    """What a plain loop over so many bytes takes."""

    def looped() -> float:
        began = time.thread_time()
        for _ in range(size):
            pass
        return time.thread_time() - began

    return min(looped() for _ in range(3))


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_no_input_costs_more_than_its_length_allows(decoder: Decoder) -> None:
    assert [shape for shape, make in decoder.shapes.items() if not _is_cheap(decoder, make)] == []


def _is_cheap(decoder: Decoder, make: Shape) -> bool:
    some, many = (int(size * decoder.times) for size in (SOME, MANY))
    least = unit(10**5)
    return all(
        any(_least(decoder, make, size) < _allowed(decoder, size) for _ in range(TRIES))
        for size in (SMALL, some)
    ) and any(
        _least(decoder, make, many) < GROWTH * MANY / SOME * max(_least(decoder, make, some), least)
        for _ in range(TRIES)
    )


def _least(decoder: Decoder, make: Shape, size: int) -> float:
    """Of two, which differ: what was read before may be remembered."""
    return min(seconds(decoder, make(longer)) for longer in (size, size + 64))


def _allowed(decoder: Decoder, size: int) -> float:
    """Measured anew each time: a processor's clock doubles and halves within a second."""
    return decoder.units * unit(10**5) / 10**5 * (size + 2**14)


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_no_input_takes_more_memory_than_its_length_allows(decoder: Decoder) -> None:
    assert [shape for shape, make in decoder.shapes.items() if not _is_small(decoder, make)] == []


def _is_small(decoder: Decoder, make: Shape) -> bool:
    seconds(decoder, make(SMALL))  # caches, and what is imported when it is needed
    sizes = (SMALL, int(SOME * min(1, decoder.times)))
    return all(_peak(decoder, data) < BYTES_ALWAYS + BYTES_A_BYTE * len(data) for data in map(make, sizes))


def _peak(decoder: Decoder, data: bytes) -> int:
    tracemalloc.start()
    try:
        seconds(decoder, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_cost_that_grows_faster_is_seen() -> None:
    decoder = Decoder(lambda data: [data[at:] for at in range(0, len(data), 4)][-1], {"": repeated(b"x")})

    def is_seen() -> bool:
        few, many = (min(seconds(decoder, b"x" * size) for _ in range(2)) for size in (SOME, MANY))
        return many > GROWTH * MANY / SOME * few

    assert any(is_seen() for _ in range(TRIES))
