"""Messages as RocketMQ's Java client prints them, in logs and by `mqadmin printMsg`.

The forms are those of MessageExt.toString and Message.toString (common/message in Apache RocketMQ): the body
is an array of bytes, and of old clients only its length, where `printMsg` (PrintMessageSubCommand) puts it
behind. Properties are a Java map, which quotes nothing: a value that could be several is not taken.
"""

import re
from array import array
from collections.abc import Mapping
from itertools import islice, pairwise
from typing import Any, NamedTuple

from dlq.connectors.jsonl.console_formats import Printed, Unreadable, check_bytes
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
    + _COMMA.join(f"{name}=(?P<{name}>{pattern})" for name, pattern in _FIELDS.items())
    + rf"{_COMMA}toString\(\)=Message(?:\{{topic='([^'\s]{{1,255}})'| ?\[topic=({_WORD}))"
    + rf"{_COMMA}flag=({_NUMBER}){_COMMA}properties=(?=\{{|null,)"
)
_TAIL = re.compile(
    rf"{_COMMA}body=(?:(?:\[([-\d,\s]*)\]|null){_COMMA}transactionId='[^'\n]{{0,255}}'\}}\]|(\d{{1,10}})\]\])"
)
_BODY = " BODY: "
_NOT_PRINTED = "NOT PRINT BODY"
_NAME = re.compile(r"[^\s=,{}\[\]\"']{1,255}")
_NEXT = re.compile(rf", {_NAME.pattern}=")
"""Where one property ends and another begins: a byte more than is stored."""
_DERIVED = ("storeSize", "bodyCRC")
_OF_THE_READER = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")
"""Properties that the client adds to what it has read (PullAPIWrapper, ConsumeMessageConcurrentlyService)."""
_PAIRS = ("{}", "[]", "()")
_MOST_BESIDE = 242
"""Bytes of a stored message beside properties and body (MessageDecoder), with the longest topic."""
_MOST_TAILS = 100
"""Looked at: each costs as much as what is before it."""
_NUMBERS = re.compile(r"[-\d,\s]*")
_TRANSACTION = "TRAN_MSG="
"""A property; with it the client prints another one behind the body, as transactionId."""


class _Part(NamedTuple):
    """What belongs to one `MessageExt [`."""

    head: re.Match[str]
    tail: re.Match[str]
    body: bytes
    end: int
    """Where the text goes on: what looks like a message before is its body."""


def messages(text: str) -> Printed:
    """Return the messages in a log, or in what `mqadmin printMsg` wrote.

    As far as one that cannot be read may reach nothing is read: what looks like a message there may be its
    value.
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
            blocked = _reach(text, start)
            last = line + text.count("\n", start, blocked)
            more = f"; what follows up to line {last} may be a value of it, and is not read"
            printed.unread.append((line, f"{why}{more if end < blocked else ''}"))
    return printed


def _blocks(text: str) -> list[tuple[int, str]]:
    """Return what `mqadmin queryMsgById` wrote (QueryMsgByIdSubCommand)."""
    why = "queryMsgById writes the body to a file (Message Body Path): let printMsg print the message"
    lines = enumerate(text.split("\n"), 1)
    return [(line, why) for line, each in lines if each.startswith("OffsetID:")]


def _reach(text: str, start: int) -> int:
    """Return how far the print of a message reaches at most, by the size that the broker has stored."""
    head = _HEAD.match(text, start)
    if not head:
        return len(text)
    room = min(len(text), 2 * int(head["storeSize"]))
    numbers = _NUMBERS.match(text, head.end() + room)
    at = room + (numbers.end() if numbers else 0)
    if text.find(_TRANSACTION, head.end(), at) >= 0:
        return at
    ends = map(_end_behind, islice(_TAIL.finditer(text, head.end(), at), _MOST_TAILS))
    return next((end for end in ends if _is_whole(head, end)), at)


def _end_behind(tail: re.Match[str]) -> int:
    """Return where the body ends that is behind; shells on Windows make the ends of its lines longer."""
    length = min(len(tail.string), int(tail[2] or 0))
    at = tail.end() + length
    return at + (len(_BODY) + tail.string.count("\r\n", tail.end(), at + length) if length else 0)


def _is_whole(head: re.Match[str], end: int) -> bool:
    """Return whether so much was printed up to `end` as was stored. Else a value may hold this end, and then
    it another message, whose head alone is longer than all that a message has beside."""
    shown = head.string[head.end() : end]
    stored = len(shown.encode(errors="replace")) - len(_NEXT.findall(shown))
    return int(head["storeSize"]) <= _MOST_BESIDE + stored


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
    body, behind = _body(text, tails[0])
    if not _is_whole(head, behind):
        raise Unreadable("a MessageExt that is shorter than its storeSize: a property may hold its end")
    check_bytes(text, start, behind)
    return _Part(head, tails[0], body, behind)


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
    if len(body) < length or printed[length:] not in (b"", b"\n", b"\r") or b"\r\n" in body:
        raise Unreadable(f"the body behind it is not the {length} bytes that it says")
    return body, at + len(body.decode())
