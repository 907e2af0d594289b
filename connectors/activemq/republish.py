"""What of a dead letter is sent again over STOMP, and what would go wrong.

A SEND keeps unknown headers as properties, and properties shadow real headers later: an
`original-destination` copied into a replay hides the true one when the message dies again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from dlq.connectors.activemq.amqp.codec import NATIVE, stored_body
from dlq.connectors.activemq.look.jolokia import PROPERTY, TYPE_OF, is_dead_letter_name
from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.messages import PACKED, Value, value_of
from dlq.connectors.activemq.records import amqp10
from dlq.connectors.activemq.records.openwire import RAW_OF, header_text
from dlq.connectors.activemq.stomp.codec import encode, text_of, unsayable_name
from dlq.connectors.amqp10.codec import message
from dlq.connectors.amqp10.codec.values import NULL, span
from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.core.errors import UsageError
from dlq.core.headers.failure_headers import Keep, strip_failure
from dlq.core.headers.provenance import REPLAY_ID, REPLAY_PREFIX
from dlq.core.record import FLAG_INNER_NUL, Record

_EXPIRY = {message.HEADER: message.TTL, message.PROPERTIES: 8}
"""Section -> place of the field: `ttl` of the header, `absolute-expiry-time` of the properties."""
_LIST_8, _LIST_32 = 0xC0, 0xD0


def without_expiry(encoded: bytes) -> bytes:
    """Return an AMQP 1.0 message without its ttl and absolute-expiry-time; unchanged where it is none.

    Classic stores it encoded as it came. Replayed with its old expiry, an AMQP client refuses it at once
    (seen with Qpid JMS on 5.18.6 and 6.3.1: it dies again, and its consumer never sees it).
    """
    try:
        return b"".join(_sections(encoded))
    except (IndexError, ValueError):
        return encoded


def _sections(encoded: bytes) -> Iterator[bytes]:
    for code, start, begin, end in message.sections(encoded):
        section = encoded[begin:end]
        yield encoded[start:begin] + (_set_null(section, _EXPIRY[code]) if code in _EXPIRY else section)


def _set_null(fields: bytes, place: int) -> bytes:
    """Return a list with null at one place; unchanged where it ends before."""
    kind, size = fields[0], 4 if fields[0] == _LIST_32 else 1
    first = 1 + 2 * size
    count = int.from_bytes(fields[1 + size : first])
    if kind not in (_LIST_8, _LIST_32) or place >= count:
        return fields
    at = first
    for _ in range(place):
        at = span(fields, at)
    items = fields[first:at] + NULL + fields[span(fields, at) :]
    return b"".join([bytes([kind]), (len(items) + size).to_bytes(size), count.to_bytes(size), items])


_MAX_HEADER_BYTES = 10 * 1024
"""Classic closes the connection at a longer header line (StompWireFormat.MAX_HEADER_LENGTH)."""
_MAX_HEADERS = 1000
_MAX_BODY_BYTES = 100 * 2**20

_BROKER_OWNED = re.compile(
    r"destination|message-id|subscription|ack|redelivered|content-length|receipt|transaction|expires|browser|selector"
    r"|persistent|original-destination|originalExpiration|originalDeliveryMode|dlqDeliveryFailureCause|JMSXUserID"
    r"|JMSXDeliveryCount|redeliveryDelay|scheduledJobId|AMQ_SCHEDULED_.*|transformation|amq-msg-type|destination-type"
    rf"|_AMQ_.*|__HDR_.*|__AMQ_CID|JMSXGroupSeq|{REPLAY_PREFIX}.*"
)
_GROUP_ID = "_AMQ_GROUP_ID"
"""How Artemis shows a group, which goes back by the name that both take: JMSXGroupID."""
_NO_EXPIRY = "0"
"""What STOMP shows of each letter that never expires: nothing is taken away with it."""
_OF_AMQP = re.compile(r"JMS_AMQP_.*|NATIVE_MESSAGE_ID")
"""How Artemis shows the parts of an AMQP message. Sent back as strings they make a letter that no AMQP
consumer can be given; Classic wants them, as the body is the whole AMQP message there."""
_EXPIRY_OF_AMQP = "ttl, absolute-expiry-time"
"""What is stripped of an AMQP message inside its body."""
_TOPIC = "a topic: every subscriber gets it, and each queue of a virtual topic, not only the one that failed"
_COMPOSITE = "several destinations: each gets it, not only the one that failed"
_TYPES = "STOMP sends every property as a string; a numeric selector no longer matches it"
_UNKNOWN_TYPES = (
    "STOMP showed every property as a string, and so it is sent, whatever it was; a pull by OpenWire or with "
    "jolokia_details keeps types"
)
_GROUP = "STOMP shows no group: if it had one (JMSXGroupID), it is lost; jolokia_details keeps it"
_CARRIED = (
    "it was moved or copied by hand: of a copied one the message may still be in its own queue, "
    "and get there twice"
)
_OF_VIRTUAL_TOPIC = re.compile(r"Consumer\.[^.]+\.VirtualTopic\..+")
_WAS_TOPIC = (
    "it came by a virtual topic: a selector of its consumer that asks for JMSDestination found the topic, "
    "and finds the queue now"
)
_TEMPORARY = re.compile(r"/?(?:remote-)?temp-(?:queue|topic)[:/]|jms\.temp(?:queue|topic)\.", re.IGNORECASE)
_ASKER_GONE = (
    "its JMSReplyTo is a temporary destination, which ended with who asked: a reply may fail its consumer"
)
_NEW_TIME = (
    "Artemis takes no time by STOMP: its JMSTimestamp is when it is sent again; a consumer sees the headers "
    "of the SEND (timestamp, transaction, destination, destination-type) as properties, too; set openwire_url"
)
_REPLY_TO_QUEUE = "its reply-to goes as queue://{}, which is what a consumer by STOMP sees"
_KINDS = {"queue": "/queue/", "topic": "/topic/"}
_COMPOSED = re.compile(r",(queue|topic)://")
"""How OpenWire names a further destination of a composite, and STOMP does not."""
_BY_OPENWIRE_ALONE = ("plain", "map", "object", "stream", "blob")
"""Classes of messages of which STOMP shows nothing."""
_NUMBERS, _FIELDS_OF_TEXT = ("priority", "timestamp"), ("correlation-id", "reply-to", "type", "JMSXGroupID")
"""Headers that are fields of OpenWire's messages."""


def target_of(record: Record, to: str) -> Target | None:
    """Return where a letter goes; see `Connector.target_of`."""
    named = _parse_target(to)
    if named is not None:
        return named
    if to != "origin":
        raise UsageError(f"--to {to}: ActiveMQ has origin, queue:NAME and topic:NAME; choose one")
    if not record.origin or record.origin_kind not in _KINDS:
        return None
    return _failed_queue(record) or Target(record.origin_kind, record.origin)


@lru_cache(256)
def _parse_target(to: str) -> Target | None:
    kind, _, name = to.partition(":")
    return Target(kind, name) if kind in _KINDS and name else None


def _failed_queue(record: Record) -> Target | None:
    """Artemis names the queue that failed beside its address: a subscription can be reached alone, also where
    it has the address' own name."""
    address, queue = record.headers.get("_AMQ_ORIG_ADDRESS"), record.headers.get("_AMQ_ORIG_QUEUE")
    if record.broker_kind != "artemis" or not address or not queue:
        return None
    is_multicast = record.headers.get("_AMQ_ORIG_ROUTING_TYPE") == "0"
    return Target("queue", f"{address}::{queue}") if address != queue or is_multicast else None


@lru_cache(4096)
def _split(names: tuple[str, ...], artemis: bool, expires: bool) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return those that are never sent again, and the others that are, as they are; letters of one kind all
    have the same names."""
    gone = [_BROKER_OWNED, *([_OF_AMQP] if artemis else [])]
    owned = dict.fromkeys(name for name in names if any(pattern.fullmatch(name) for pattern in gone))
    kept = (_GROUP_ID, *(() if expires else ("expires",)))
    told = [name for name in owned if name not in kept]
    return told, tuple(name for name in names if name not in owned)


def _own(record: Record, keep_headers: Keep) -> tuple[dict[str, str], list[str]]:
    """Return the letter's headers as they are sent again, and what is taken away of them."""
    headers = record.headers
    expires = headers.get("expires") != _NO_EXPIRY
    owned, own = _split(tuple(headers), record.broker_kind == "artemis", expires)
    kept, taken = strip_failure(headers, keep_headers, own, owned)
    return kept, [*owned, *taken]


def preview(letter: Outgoing, typed: bool = False, always: Sequence[str] = ()) -> SendPreview:
    """See `Connector.preview`. `typed`: it goes back by OpenWire; `always`: warnings of every letter."""
    _, record, target, provenance, keep_headers = letter
    own, stripped = _own(record, keep_headers)
    try:
        headers, body, measured = _content(record, own, target, provenance)
    except ValueError as error:
        return SendPreview(stripped, f"its body makes no message of AMQP 1.0: {error}")
    if body != record.body and _is_amqp(record) and body != stored_body(record):
        stripped.append(_EXPIRY_OF_AMQP)
    if record.properties and not typed:
        stripped += (name for _, name in _names_with(tuple(record.properties), PROPERTY))
    number = len(headers) + 1 + measured  # the transaction's, and the length's
    others = _fans_out(target) or _carried_away(record, target)
    return SendPreview(
        stripped,
        _problem(record, headers, number, body, typed),
        [*([others] if others else []), *_warnings(record, headers, typed), *always],
        {"target": others} if others else {},
    )


def preview_whole(letter: Outgoing, typed: bool, always: Sequence[str] = ()) -> SendPreview:
    """`preview`, and what of a message that came by AMQP 1.0 another protocol would lose or change."""
    known = preview(letter, typed, always)
    if lost := amqp10.why_lost(letter.record):
        known = known._replace(problem=lost)
    if change := amqp10.what_would_change(letter.record):
        known = known._replace(unless_named={**known.unless_named, "letter": change})
    return known


def preview_by_amqp(letter: Outgoing) -> SendPreview:
    """Return the same of a message that goes back by AMQP 1.0."""
    others = _fans_out(letter.target)
    stripped = amqp10.stripped_names(letter.record, letter.keep_headers)
    return SendPreview(stripped, None, [others] if others else [], {"target": others} if others else {})


def preview_offline(letter: Outgoing) -> SendPreview:
    """Return the same where nobody knows what the broker speaks: what STOMP would change is told."""
    if amqp10.is_of_amqp(letter.record):
        return preview_by_amqp(letter)
    return preview_whole(letter, typed=False)


def _fans_out(target: Target) -> str | None:
    """Return why a letter would go to others than the one that failed: it died for a subscription, in a queue
    of a virtual topic whose name the broker did not keep (setOriginalDestination=false), or in a
    composite."""
    if target.kind == "topic" and "::" not in target.name:
        return f"{target.name} is {_TOPIC}"
    return f"{target.name} is {_COMPOSITE}" if "," in target.name else None


def _problem(record: Record, headers: Mapping[str, str], number: int, body: bytes, typed: bool) -> str | None:
    if record.flags and record.flags & FLAG_INNER_NUL and not typed:
        return "a text with NUL: its end is a conclusion, and it is still in its queue; set openwire_url"
    if len(body) > _MAX_BODY_BYTES:
        return f"its body is larger than {_MAX_BODY_BYTES} bytes, the broker's default limit"
    return _misfit(record, headers) if typed else _problem_of_stomp(record, headers, number)


def _misfit(record: Record, headers: Mapping[str, str]) -> str | None:
    """Return what OpenWire has no room for: a name or a field that is too long, or what an edit has made of a
    number, or of a property that its type cannot hold."""
    for name in _NUMBERS:
        if not _is_number(headers.get(name, "0")):
            return f"its {name} is {headers[name][:60]!r}, which is no number"
    values = {**headers, **user_properties(record)}
    texts = [*values, *filter(None, map(headers.get, _FIELDS_OF_TEXT))]
    try:
        for text in texts:
            commands.utf(text)
    except ValueError as error:
        return str(error)
    types = types_of(record)
    raw = raw_values(record, values) if types else {}
    wrong = (
        f"its property {name!r} is of the type {kind}, which cannot hold {values[name][:60]!r}"
        for name, kind in types.items()
        if name in values and name not in raw and not commands.holds(kind, values[name])
    )
    return next(wrong, None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _problem_of_stomp(record: Record, headers: Mapping[str, str], number: int) -> str | None:
    if record.properties and (beyond := _beyond_stomp(record.properties)):
        return f"{beyond}; set openwire_url"
    if record.broker_kind != "artemis" and (odd := unsayable_name(headers)):
        return f"{odd}; set openwire_url"
    long = None
    if 8 * len("".join([*headers, *headers.values()])) >= _MAX_HEADER_BYTES:  # else none has that length
        lengths = ((name, _line_bytes(name, value)) for name, value in headers.items())
        long = next((name for name, length in lengths if length > _MAX_HEADER_BYTES), None)
    if long is not None:
        return f"its header {long[:60]!r} has more than {_MAX_HEADER_BYTES} bytes: that closes the connection"
    if number > _MAX_HEADERS:
        return f"it has more than {_MAX_HEADERS} headers: the broker would close the connection"
    return None


def _beyond_stomp(properties: Mapping[str, str]) -> str | None:
    """Return what a message with these properties has that STOMP cannot carry."""
    shadowing = _shadowing_name(tuple(properties))
    if shadowing is not None:
        return f"its property {shadowing!r} has the name of a header of STOMP, which cannot carry both"
    if properties.get("class") in _BY_OPENWIRE_ALONE:
        return f"a message of class {properties['class']}: STOMP cannot carry it"
    if PACKED in properties:
        return "its content is compressed, and kept so: STOMP cannot carry it"
    return None


def _line_bytes(name: str, value: str) -> int:
    """Return the length of an encoded line; encoding doubles a byte at most."""
    if 2 * (len(name) + 4 * len(value)) < _MAX_HEADER_BYTES:
        return 0
    return len(encode("", {name: value}))


_RE_DERIVED = {"content-length", "amq-msg-type"}
"""What a STOMP client's text has as a property, and gets again."""
_PLAIN = {
    "destination",
    "priority",
    "correlation-id",
    "reply-to",
    "type",
    "timestamp",
    "persistent",
    "content-length",
}


def _warnings(record: Record, headers: Mapping[str, str], typed: bool) -> Sequence[str]:
    warnings: list[str] = []
    if _hold_properties(tuple(headers)):
        warnings += _type_warnings(record, typed)
    if record.broker_kind == "artemis" and not typed:
        warnings.append(_NEW_TIME)
    if record.broker_kind == "activemq":
        if not record.properties:
            warnings.append(_GROUP)
        if _was_carried(record):
            warnings.append(_CARRIED)
        if _OF_VIRTUAL_TOPIC.fullmatch(record.origin or ""):
            warnings.append(_WAS_TOPIC)
    reply_to = headers.get("reply-to", "")
    if _TEMPORARY.match(reply_to):
        warnings.append(_ASKER_GONE)
    if typed and reply_to and "/" not in reply_to:
        warnings.append(_REPLY_TO_QUEUE.format(reply_to[:60]))
    if not record.persistent and "originalDeliveryMode" not in record.headers:
        warnings.append("it was not persistent; it is sent persistent, else the next failure would lose it")
    return warnings


@lru_cache(4096)
def _hold_properties(names: tuple[str, ...]) -> bool:
    return any(name not in _PLAIN and not name.startswith((REPLAY_PREFIX, "_AMQ_")) for name in names)


def _carried_away(record: Record, target: Target) -> str | None:
    """Return why the place that a letter names is not where it failed: somebody moved it out of a dead-letter
    queue, and Classic then names that."""
    if target.name == record.origin and _was_carried(record) and is_dead_letter_name(target.name):
        return (
            f"{target.name} is the dead-letter queue out of which it was moved: where it failed is not known"
        )
    return None


def _was_carried(record: Record) -> bool:
    """Return whether somebody moved or copied it on Classic, which stamps what it kills."""
    headers = record.headers
    is_named = record.broker_kind == "activemq" and "original-destination" in headers
    return is_named and "originalExpiration" not in headers and headers.get("expires", "0") == "0"


def _type_warnings(record: Record, typed: bool) -> Sequence[str]:
    """Precise where Jolokia has told the types."""
    if not record.properties:
        return [_UNKNOWN_TYPES if typed else _TYPES]
    if typed:
        return []
    known = [f"{name} ({kind})" for name, kind in types_of(record).items()]
    return [f"{_TYPES}: {', '.join(known)}" if known else _TYPES]


def user_properties(record: Record) -> dict[str, str]:
    """Return those with names of STOMP's headers, which OpenWire alone tells apart."""
    return _of_prefix(record, PROPERTY)


def types_of(record: Record) -> dict[str, str]:
    """Return the types of the user properties that are not text, where Jolokia has told them."""
    return _of_prefix(record, TYPE_OF)


_HEX = re.compile(r"(?:[0-9a-f]{2})+")


def raw_values(record: Record, values: Mapping[str, str]) -> dict[str, bytes]:
    """Return the properties that no text holds (maps, lists, bytes and null) as they came, but for those
    whose text among `values` is another by now: an edit is meant."""
    told = {n: bytes.fromhex(v) for n, v in _of_prefix(record, RAW_OF).items() if _HEX.fullmatch(v)}
    found = {name: value_of(data) for name, data in told.items()}
    return {n: told[n] for n, value in found.items() if value and values.get(n) in _texts_of(value, record)}


def _texts_of(value: Value, record: Record) -> Sequence[str]:
    """Return how readings show it: Artemis' STOMP shows null as an empty text (2.56.0)."""
    is_empty = value.kind == "null" and record.broker_kind == "artemis"
    return [header_text(value), *([""] if is_empty else [])]


def _of_prefix(record: Record, prefix: str) -> dict[str, str]:
    found = record.properties
    return {bare: str(found[name]) for name, bare in _names_with(tuple(found), prefix)}


@lru_cache(4096)
def _names_with(names: tuple[str, ...], prefix: str) -> Sequence[tuple[str, str]]:
    """Return those of these names that begin so, each with what follows."""
    return [(name, name.removeprefix(prefix)) for name in names if name.startswith(prefix)]


@lru_cache(4096)
def _shadowing_name(names: tuple[str, ...]) -> str | None:
    """Return the first user property, of those with these names, that has the name of a header of STOMP."""
    return min({name for _, name in _names_with(names, PROPERTY)} - _RE_DERIVED, default=None)


def content(
    record: Record,
    target: Target,
    provenance: Mapping[str, str],
    keep_headers: Keep,
    to_artemis: bool | None = None,
) -> tuple[dict[str, str], bytes, bool]:
    """Return the headers (without content-length) and the body of the SEND, and whether it needs its length.

    `to_artemis`: what is connected (None: the kind that the letter comes from); a broker may have been
    replaced by the other kind since.
    """
    return _content(record, _own(record, keep_headers)[0], target, provenance, to_artemis)


def _content(
    record: Record,
    own: Mapping[str, str],
    target: Target,
    provenance: Mapping[str, str],
    to_artemis: bool | None = None,
) -> tuple[dict[str, str], bytes, bool]:
    from_artemis = record.broker_kind == "artemis"
    artemis = from_artemis if to_artemis is None else to_artemis
    headers = {**own, **provenance, **destination(target, artemis), "persistent": "true"}
    group = record.headers.get(_GROUP_ID) or record.properties.get("JMSXGroupID")
    if group:
        headers["JMSXGroupID"] = group
    if artemis:
        headers["_AMQ_DUPL_ID"] = f"dlq:{provenance.get(REPLAY_ID, record.record_id)}"
    marshalled = record.properties.get("class") in _BY_OPENWIRE_ALONE
    body = stored_body(record)
    text = None if marshalled or _is_bytes(record.headers, from_artemis) else text_of(body)
    if text is None:
        return headers, without_expiry(body) if _is_amqp(record) else body, True
    holds_nul = "\0" in text
    if holds_nul and not artemis:
        headers["amq-msg-type"] = "text"
    return headers, text.encode("utf-8", "surrogatepass"), holds_nul


def _is_amqp(record: Record) -> bool:
    """Return whether the body is a whole AMQP message, as only Classic has it."""
    return record.broker_kind == "activemq" and record.headers.get(NATIVE) == "true"


def _is_bytes(headers: Mapping[str, str], artemis: bool) -> bool:
    """Return whether it was a BytesMessage. Classic gives those alone a length; Artemis puts it first."""
    if not artemis or "content-length" not in headers:
        return "content-length" in headers and headers.get("amq-msg-type") != "text"
    names = list(headers)
    return "message-id" in names and names.index("content-length") < names.index("message-id")


def wire(letter: Outgoing, transaction: str, to_artemis: bool | None = None) -> bytes:
    """Return the SEND frame inside a transaction (none: empty); `to_artemis` as for `content`. Raises
    ValueError for a name that cannot be said."""
    _, record, target, provenance, keep_headers = letter
    headers, body, measured = content(record, target, provenance, keep_headers, to_artemis)
    if transaction:
        headers["transaction"] = transaction
    artemis = record.broker_kind == "artemis" if to_artemis is None else to_artemis
    frame = encode("SEND", headers, body if measured else None, to_classic=not artemis)
    return frame if measured else frame[:-1] + body + b"\0"


@lru_cache(1024)
def destination(target: Target, artemis: bool) -> Mapping[str, str]:
    """Return the headers that name a target."""
    if artemis:
        return {
            "destination": target.name,
            "destination-type": "MULTICAST" if target.kind == "topic" else "ANYCAST",
        }
    return {"destination": _KINDS[target.kind] + _COMPOSED.sub(r",/\1/", target.name)}
