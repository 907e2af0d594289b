"""Messages as RocketMQ's Java client prints them, in logs and by `mqadmin printMsg`.

The forms are those of MessageExt.toString and Message.toString (common/message in Apache RocketMQ): the body
is an array of bytes, and of old clients only its length, where `printMsg` (PrintMessageSubCommand) puts it
behind. Properties are a Java map, which quotes nothing: a value that could be several is not taken.
"""

import re
from array import array
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from dlq.connectors.jsonl.console_formats import Printed, Unreadable
from dlq.connectors.jsonl.format import body_fields
from dlq.connectors.rocketmq.link.message import COMPRESSION

_NUMBER, _HOST, _WORD = r"-?\d{1,20}", r"[^,\s]{1,300}", r"[^,\s]{1,255}"
_FIELDS = {
    "queueId": _NUMBER, "storeSize": _NUMBER, "queueOffset": _NUMBER, "sysFlag": _NUMBER,
    "bornTimestamp": _NUMBER, "bornHost": _HOST, "storeTimestamp": _NUMBER, "storeHost": _HOST,
    "msgId": _WORD, "commitLogOffset": _NUMBER, "bodyCRC": _NUMBER, "reconsumeTimes": _NUMBER,
    "preparedTransactionOffset": _NUMBER,
}  # fmt: skip
_COMMA = r",\s{1,40}"
_START = re.compile(r"MessageExt \[(?=brokerName=|queueId=)")
_HEAD = re.compile(
    rf"MessageExt \[(?:brokerName={_WORD}{_COMMA})?"
    + _COMMA.join(f"{name}=({pattern})" for name, pattern in _FIELDS.items())
    + rf"{_COMMA}toString\(\)=Message(?:\{{topic='([^'\s]{{1,255}})'| ?\[topic=({_WORD}))"
    + rf"{_COMMA}flag=({_NUMBER}){_COMMA}properties=(?=\{{|null,)"
)
_TAIL = re.compile(
    rf"{_COMMA}body=(?:(?:\[([-\d,\s]*)\]|null){_COMMA}transactionId='[^'\n]{{0,255}}'\}}\]|(\d{{1,10}})\]\])"
)
_BODY = " BODY: "
_NOT_PRINTED = "NOT PRINT BODY"
_NAME = re.compile(r"[^\s=,{}\[\]\"']{1,255}")
_DERIVED = ("storeSize", "bodyCRC")
_OF_THE_READER = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")
"""Properties that the client adds to what it has read (PullAPIWrapper, ConsumeMessageConcurrentlyService)."""
_PAIRS = ("{}", "[]", "()")


class _Part(NamedTuple):
    """What belongs to one `MessageExt [`."""

    head: re.Match[str]
    tail: re.Match[str]
    body: bytes
    end: int
    """Where the text goes on: what looks like a message before is its body."""


def messages(text: str) -> Printed:
    """Return the messages in a log, or in what `mqadmin printMsg` wrote.

    Behind one that cannot be read its line is not read on: what looks like a message there may be its value.
    """
    printed = Printed([], [])
    starts = [found.start() for found in _START.finditer(text)]
    line, counted, blocked = 1, 0, 0
    if not starts and text.strip():
        printed.unread.extend(_blocks(text) or [(1, "no message as the client prints it: MessageExt [...]")])
    for start, end in pairwise([*starts, len(text)]):
        if start < blocked:
            continue
        line += text.count("\n", counted, start)
        counted = start
        try:
            part = _part(text, start, end)
            printed.letters.append((line, _letter(part)))
            blocked = part.end
        except Unreadable as why:
            newline = text.find("\n", start)
            line_ends = len(text) if newline < 0 else newline
            blocked = max(line_ends, _last_end(text, start, end))
            place = "in its line" if blocked == line_ends else "where its body may be"
            more = f"; what follows {place} is not read" if end < blocked else ""
            printed.unread.append((line, f"{why}{more}"))
    return printed


def _blocks(text: str) -> list[tuple[int, str]]:
    """Return what `mqadmin queryMsgById` wrote (QueryMsgByIdSubCommand)."""
    why = "queryMsgById writes the body to a file (Message Body Path): let printMsg print the message"
    lines = enumerate(text.split("\n"), 1)
    return [(line, why) for line, each in lines if each.startswith("OffsetID:")]


def _last_end(text: str, start: int, end: int) -> int:
    """Return how far the body behind a message reaches at most."""
    tails = _TAIL.finditer(text, start, end)
    return min(len(text), max((found.end() + int(found[2] or 0) for found in tails), default=0))


def _part(text: str, start: int, end: int) -> _Part:
    head = _HEAD.match(text, start, end)
    if not head:
        raise Unreadable("a MessageExt that is cut, or not as the client prints it")
    tails = list(_TAIL.finditer(text, head.end(), end))
    if len(tails) != 1:
        why = (
            "two ends, and nothing shows which is its own" if tails else "no end: properties or body are cut"
        )
        raise Unreadable(f"a MessageExt with {why}")
    return _Part(head, tails[0], *_body(text, tails[0]))


def _letter(part: _Part) -> dict[str, Any]:
    *values, topic, old_topic, flag = part.head.groups()
    headers = {name: value for name, value in zip(_FIELDS, values, strict=True) if name not in _DERIVED}
    headers |= {name: headers[name].rpartition("/")[2] for name in ("bornHost", "storeHost")}
    # Clients print the body unpacked, and the flag as it was stored.
    headers["sysFlag"] = str(int(headers["sysFlag"]) & ~COMPRESSION)
    properties = _properties(part.head.string[part.head.end() : part.tail.start()])
    return {
        "broker_kind": "rocketmq",
        "topic": topic or old_topic,
        "headers": {**headers, "flag": flag},
        "properties": {name: value for name, value in properties.items() if name not in _OF_THE_READER},
        **body_fields(part.body),
    }


def _properties(text: str) -> Mapping[str, str]:
    """Return a Java map. A comma parts two properties where a name and = follow it."""
    if text in ("null", "{}"):
        return {}
    if not text.endswith("}") or "\n" in text:
        raise Unreadable("its properties are cut, or wrapped into several lines")
    pairs: list[tuple[str, list[str]]] = []
    for piece in text[1:-1].split(", "):
        name, equals, value = piece.partition("=")
        if equals and _NAME.fullmatch(name):
            pairs.append((name, [value]))
        elif equals or not pairs:
            raise Unreadable(f"its properties have two meanings at {piece[:40]!r}")
        else:
            pairs[-1][1].append(piece)
    found = {name: ", ".join(value) for name, value in pairs}
    for name, value in [*found.items()][:-1]:
        if not _is_balanced(value):
            raise Unreadable(f"its properties have two meanings: {name} ends within a bracket or quote")
    if len(found) != len(pairs):
        raise Unreadable("its properties have one name twice, so that one of them is part of a value")
    return found


def _is_balanced(value: str) -> bool:
    return all(value.count(pair[0]) == value.count(pair[1]) for pair in _PAIRS) and value.count('"') % 2 == 0


def _body(text: str, tail: re.Match[str]) -> tuple[bytes, int]:
    """Return the body, and where it ends."""
    printed, length = tail.groups()
    if length and int(length):
        return _body_behind(text, tail.end(), int(length))
    return _bytes(printed or ""), tail.end()


def _bytes(printed: str) -> bytes:
    try:
        return array("b", map(int, printed.split(",")) if printed.strip() else []).tobytes()
    except (ValueError, OverflowError) as error:
        raise Unreadable("its body is no array of bytes") from error


def _body_behind(text: str, at: int, length: int) -> tuple[bytes, int]:
    """Return the body that `printMsg` puts behind the message, where it is as long as the message says."""
    if not text.startswith(_BODY, at) or text.startswith(_BODY + _NOT_PRINTED, at):
        raise Unreadable(f"the print holds only the length of its body, {length} bytes")
    at += len(_BODY)
    printed = text[at : at + length + 1].encode("utf-8", "backslashreplace")
    body = printed[:length]
    if len(body) < length or printed[length : length + 1] not in (b"", b"\n", b"\r"):
        raise Unreadable(f"the body behind it is not the {length} bytes that it says")
    return body, at + len(body.decode())
