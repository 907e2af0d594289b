"""Fingerprints of version 1: archives and people's notes hold them, so a letter still knows its own.

What version 1 made of a text was once decided by Spark SQL with Java's patterns, so `\\w`, `\\d`, `\\s` are
ASCII's here, while `\\b` (`(?u:\\b)`) knows all letters. Nothing here changes any more. Texts are cut
first, and no pattern costs a hostile text more than its length times a few hundred.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from dlq.analyzers.rules.exceptions import (
    ENDINGS,
    LONGEST_HINT,
    LONGEST_MESSAGE,
    LONGEST_TEXT,
    end_of_traceback,
    said,
    simplified,
)

VERSION = 1
_LONGEST_ROOT = 8_192
_LONGEST_HEAD = 4_096
_ANY = r"[^\n\r\x85\u2028\u2029]"  # Java's dot
_VERBOSE = re.VERBOSE | re.ASCII


class Read(NamedTuple):
    """What version 1 reads in an error text."""

    exception_class: str | None
    exception_message: str | None
    place: str | None
    """The first own frame without numbers, else the message without what varies."""


def fingerprint(cause: str, mechanism: str | None, where: str | None, read: Read) -> str:
    """The fingerprint that version 1 gave; `where` is the origin, else the dead-letter queue."""
    if read.exception_class is None and read.place is None:
        return _hashed(cause, *(part for part in (mechanism, where) if part is not None))
    return _hashed(cause, read.exception_class or "", read.place or "")


@lru_cache(2048)
def _hashed(cause: str, *parts: str) -> str:
    """Without a part there still is the bar that would stand before it."""
    told = f"{VERSION}|{cause}|{'|'.join(parts)}"
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read(error_class: str | None, error_message: str | None, error_text: str | None) -> Read:
    """Reads a verdict's error fields. What the text says of class and message wins over the other two."""
    if len(error_text or "") + len(error_message or "") + len(error_class or "") > LONGEST_TEXT:
        return _read(error_class, error_message, error_text)
    return _remembered(error_class, error_message, error_text)


def _read(error_class: str | None, error_message: str | None, error_text: str | None) -> Read:
    """Root cause, head, class and message, place."""
    text = said(error_text, error_message)
    root = None if text is None else _root_cause(text)
    first = None if root is None else _head(root)
    name = None if first is None or text is None else _class_of(first, text)
    if first is not None and name is not None:
        message = _message_of(first, name)
    else:
        name, message = error_class or None, error_message or first
    message = None if message is None else message[:LONGEST_MESSAGE]
    hint = None if message is None else message[:LONGEST_HINT]
    frame = None if root is None or text is None else _own_frame(root, text)
    return Read(name, message, _template(hint) if frame is None else _GENERATED.sub("", frame))


_remembered = lru_cache(maxsize=512)(_read)


# --- From the whole text to the root cause ---

_TRACEBACK = "Traceback (most recent call last)"
_INNER_NUMBER = re.compile(r"\(Inner\ Exception\ \#\d++\)\ ", _VERBOSE)  # of an AggregateException


def _root_cause(text: str) -> str:
    """The text from the root cause on."""
    for mark in ("Caused by: ", "nested exception is "):
        if mark in text:
            return text.rpartition(mark)[2]
    if " ---> " in text:
        inner = text.rpartition(" ---> ")[2]
        number = _INNER_NUMBER.match(inner)
        return inner[number.end() :] if number else inner
    return end_of_traceback(text) if _TRACEBACK in text else text


# --- From the root cause to its class and message ---

_FRAMES = re.compile(
    r"""
    \n \s{1,8}
    (?: at[ ]           # Java, .NET, Node
      | ---             # .NET: --- End of inner exception stack trace ---
      | \.\.\.[ ]\d     # Java: ... 9 more
      | File[ ]"        # Python
    )
    """,
    _VERBOSE,
)
_CLASS = r"[A-Za-z_$] [\w$.+/]{0,250}+"
_NAMED = re.compile(
    # Java's $ is before a last line break, too.
    rf"{_CLASS} (?: : | (?: \r\n | [\n\r\x85\u2028\u2029] )? \Z )",
    _VERBOSE,
)
_FOUND_INSIDE = re.compile(
    rf"""
    (?<! [^\s:(] )      # at the beginning, or after a blank, a colon, a parenthesis
    [A-Za-z_$] [\w$.+]{{0,250}} (?:{"|".join(ENDINGS)}) :[ ]
    """,
    _VERBOSE,
)
_HEAD_CLASS = re.compile(rf"(?P<name> {_CLASS} ) (?: :[ ] | :? \s*+ [\x85\u2028\u2029]? \Z )", _VERBOSE)
_STACK = re.compile(r"\n [ \t]{1,8} at[ ] | Traceback[ ]\(", _VERBOSE)


def _head(root: str) -> str:
    """What stands before the frames: `class: message`, or some words, from an exception's name in them on."""
    root = root[:_LONGEST_ROOT]
    frames = _FRAMES.search(root)
    if frames:
        root = root[: frames.start()].removesuffix("\r")
    root = root[:_LONGEST_HEAD]
    if _NAMED.match(root) or ": " not in root:
        return root
    inside = _FOUND_INSIDE.search(root)
    return root[inside.start() :] if inside else root


def _class_of(first: str, text: str) -> str | None:
    """The class that a head begins with: named like an exception, or dotted and with a stack below."""
    found = _HEAD_CLASS.match(first)
    name = found["name"] if found else ""
    if name.endswith(ENDINGS) or ("." in name and _STACK.search(text)):
        return name
    return None


def _message_of(first: str, name: str) -> str | None:
    """What follows the class."""
    rest = first[len(name) :]
    return rest[1:].lstrip(" ") or None if rest.startswith(":") else None


# --- Where it happened ---

_JVM_FRAME = re.compile(
    r"""
    \n [ \t]{0,8} at[ ]
    (?: [\w.@-]{1,99}+ / ){0,2}         # a class loader, a module
    (?!                                 # libraries
      (?: java | javax | jakarta | jdk | sun | com\.sun | kotlin | kotlinx | scala | groovy | reactor
        | okhttp3? | internal | node
        | org\. (?: springframework | hibernate | apache | eclipse | postgresql | junit )
        | com\. (?: rabbitmq | zaxxer | mysql | fasterxml | google )
        | io\.  (?: netty | micrometer | grpc | vertx )
        | System | Microsoft | MassTransit | NServiceBus | EasyNetQ | Rebus | RabbitMQ | Npgsql | Newtonsoft
      ) [./]
    )
    (?P<frame> [\w.$`<>+/\[\]-]++ ) \(  # .NET's frames look the same
    """,
    _VERBOSE,
)
_NODE_FRAME = re.compile(
    rf"""
    \n [ \t]{{0,8}} at[ ] (?: async[ ] )?
    (?! {_ANY}* node_modules )
    (?P<frame> [\w.$<>]++ ) [ ]\(
    """,
    _VERBOSE,
)
_PYTHON_FRAME = re.compile(
    r"""
    [ \t]{1,8} File[ ]" (?P<path> [^"]*+ ) ",[ ]line[ ]\d++,[ ]
    (?P<function> in[ ][\w<>.]++ )
    """,
    _VERBOSE,
)
_PYTHON_LIBRARIES = ("site-packages", "lib/python", "<frozen")
_GENERATED = re.compile(rf"\d+ | \$\$ {_ANY}*", _VERBOSE)
_VARIABLE = re.compile(
    r"""
      " [^"]{0,300} " | ' [^']{0,300} ' | \[ [^\]]{0,300} \]    # no hint is longer
    | [\w.+-]{1,300}+ @ [\w.-]+
    | https?://\S+
    | (?u:\b) [0-9a-fA-F]{8} - [0-9a-fA-F-]{27} (?u:\b)         # a UUID
    | (?u:\b) (?= [a-fA-F]{0,300}+ \d ) [0-9a-fA-F]{6,}+ (?u:\b)
    | \d [\d.,:TZ+-]*
    """,
    _VERBOSE,
)


def _own_frame(root: str, text: str) -> str | None:
    """The first frame of one's own code below the root cause, else anywhere; Python's is the last."""
    if _TRACEBACK in text:
        return _python_frame(text)
    if "at " not in text:
        return None
    # A first line looks like the others.
    of_root, whole = f"\n{root}", f"\n{text}"
    found = _JVM_FRAME.search(of_root) or _JVM_FRAME.search(whole) or _NODE_FRAME.search(of_root)
    return found["frame"] if found else None


def _python_frame(text: str) -> str | None:
    return next(filter(None, map(_python_name, reversed(text.split("\n")[1:]))), None)


def _python_name(line: str) -> str | None:
    """File and function of a line of one's own code."""
    found = _PYTHON_FRAME.match(line)
    file = found["path"].rpartition("/")[2] if found else ""
    if found and file and not any(library in found["path"] for library in _PYTHON_LIBRARIES):
        return f"{file} {found['function']}"
    return None


def _template(hint: str | None) -> str | None:
    """A message without what varies: quoted text, addresses, ids, numbers."""
    if hint is None or hint.isascii():
        return hint and _VARIABLE.sub("?", hint)
    parts, end = [], 0
    for found in _VARIABLE.finditer(simplified(hint)):
        parts.append(hint[end : found.start()])
        end = found.end()
    return "?".join([*parts, hint[end:]])
