"""Exceptions: the root cause's class and message, its family, and a fingerprint that lasts.

How one reads a stack trace: go to the root cause (`Caused by:`, nested exception is, .NET's ` ---> `, a
traceback's last line), leave out its frames, and what stays is `class: message`, or some words. The
first frame that is neither the platform's nor a library's says where (`dlq.analyzers.rules.stack`).

Fingerprints stand in people's archives and notes: what goes into one changes only with its version.
In the patterns of families `\\w`, `\\d`, `\\s` are ASCII's, while `\\b` (`(?u:\\b)`) knows all letters.
Texts are cut first, and no pattern costs a hostile text more than its length times a few hundred.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from dlq.analyzers.rules import stack

FINGERPRINT_VERSION = 2
LONGEST_TEXT = 65_536
_LONGEST_MESSAGE = 2_000
_LONGEST_HINT = 300
_LONGEST_ROOT = 8_192
_LONGEST_HEAD = 4_096

_ENDINGS = (
    "Exception", "Error", "Throwable", "Timeout", "Failure", "Fault", "Interrupt", "Warning", "Abort",
    "Rejected", "Exit", "Panic",
)  # fmt: skip
"""What the name of an exception ends with."""

_ANY = r"[^\n\r\x85\u2028\u2029]"  # Java's dot
_VERBOSE = re.VERBOSE | re.ASCII


class ReadException(NamedTuple):
    """What a letter's error text tells."""

    exception_class: str | None
    exception_message: str | None
    exception_family: str | None
    place: str | None
    """The first own frame without what compilers number, else the message without what varies."""
    firm_family: str | None = None
    """The family, as far as advice may rest on it."""
    outer: str | None = None
    """Of a chain, in any language, what its outermost exception says."""


_NOTHING = ReadException(None, None, None, None)


def explain(error_class: str | None, error_message: str | None, error_text: str | None) -> ReadException:
    """Read a verdict's error fields. What the text says of class and message wins over the other two.

    Thousands of letters share one text, so the last few hundred are remembered, if they are not too long.
    """
    if error_class is None and error_message is None and error_text is None:
        return _NOTHING
    if len(error_text or "") + len(error_message or "") + len(error_class or "") > LONGEST_TEXT:
        return _parse(error_class, error_message, error_text)
    return _remembered(error_class, error_message, error_text)


def fingerprint(cause: str, mechanism: str | None, where: str | None, failure: ReadException) -> str:
    """Return what joins failures of one kind: a cause with the exception's class, else its words, and its
    place.

    Without an exception it says where letters of this cause died: `where` is the origin, else the
    dead-letter queue.
    """
    if failure.exception_class is None and failure.place is None:
        return _hash_cause(cause, *(part for part in (mechanism, where) if part is not None))
    what = failure.exception_class or template(failure.exception_message) or ""
    return _hash_cause(cause, what, failure.place or "")


@lru_cache(2048)
def _hash_cause(cause: str, *parts: str) -> str:
    """Hash a cause; without a part there still is the bar that would stand before it."""
    told = f"{FINGERPRINT_VERSION}|{cause}|{'|'.join(parts)}"
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


_DOTS = " .\u2026\t\r\n"


def if_told(text: str | None) -> str | None:
    """Return a text that says something: people put dots where they leave one out."""
    return text if text is None or text.strip(_DOTS) else None


def if_class(name: str | None) -> str | None:
    """Return a name that may be a class': no time, no number, no dots, no bytes that were cut."""
    if name is None or len(name) < 3 or not (name[0].isalpha() or name[0] in "_$"):
        return None
    return None if "\ufffd" in name or "\n" in name else name


def _text_to_read(error_text: str | None, error_message: str | None) -> str | None:
    """Return what there is to read, cut and without blanks around; a text of spaces says nothing."""
    text = (error_text and error_text.strip(" ")) or error_message
    return None if text is None else text.strip(" \n\r\t")[:LONGEST_TEXT]


_INNER_FOLLOWS = re.compile(r" ---> | nested exception is ")
_MARKS_OF_INNER = (" ---> ", " nested exception is ")


def _outermost(error_text: str | None, trace: Sequence[str]) -> str | None:
    text = _text_to_read(error_text, None)
    if text is None or not any(mark in text for mark in _CHAINS):
        return None
    last = _end_of_traceback(trace[-1]) if stack.TRACEBACK in trace[-1] else trace[-1]
    begin, inner = last[:_LONGEST_ROOT], []
    if any(mark in begin for mark in _MARKS_OF_INNER):
        begin, *inner = _INNER_FOLLOWS.split(begin, maxsplit=1)
    is_chain = len(trace) > 1 or inner
    return (stack.before_frames(begin).strip(" \n\r\t;")[:_LONGEST_MESSAGE] or None) if is_chain else None


_CHAINS = (*stack.CHAINS, " --->", "nested exception is ")
"""What stands between the exceptions of a chain."""


def _parse(error_class: str | None, error_message: str | None, error_text: str | None) -> ReadException:
    """Return the story in one piece: root cause, head, class and message, place, family, what it is wrapped
    in."""
    text = _text_to_read(error_text, error_message)
    text = None if text is None else stack.tidy(text)
    trace = [] if text is None else stack.parts(text)
    first = _head(_root_of(trace[0])) if trace else None
    name = None if first is None or text is None else _class_of(first, text, len(trace) > 1)
    if first is not None and name is not None:
        message = _message_of(first, name)
    else:
        name, message = error_class or None, error_message or first
    message = None if message is None else message[:_LONGEST_MESSAGE]
    hint = None if message is None else message[:_LONGEST_HINT]
    place = stack.place(trace) or template(message)
    if message is not None and message.endswith("]") and _IN_BRACKETS in (text or ""):
        message = message[:-1]
    family = _classify(name, hint)
    firm = _family_that_holds(name, (message or "")[:_LONGEST_HINT], family)
    return ReadException(name, message, family, place, firm, _outermost(error_text, trace))


_remembered = lru_cache(maxsize=512)(_parse)
_IN_BRACKETS = "Caused by: ["
"""How Camel tells of a cause, up to a bracket at the end that is not the cause's
(CamelExchangeException.createExceptionMessage); fingerprints were made with it."""


# --- From the root cause to its class and message ---

_INNER_NUMBER = re.compile(r"\(Inner\ Exception\ \#\d++\)\ ", _VERBOSE)  # of an AggregateException


def _root_of(part: str) -> str:
    """Return the text from the root cause on, in the innermost part of a trace."""
    if stack.TRACEBACK in part:
        return _end_of_traceback(part)
    part = part.rpartition("nested exception is ")[2]
    inner = part.rpartition(" ---> ")[2]
    number = _INNER_NUMBER.match(inner)
    return inner[number.end() :] if number else inner


def _end_of_traceback(text: str) -> str:
    """Return what follows the last indented line: a Python traceback says its exception last."""
    lines = text.split("\n")
    for number in range(len(lines) - 1, 1, -1):
        line = lines[number]
        if line and line[0] not in " \t\r\v\f" and lines[number - 1].startswith((" ", "\t")):
            return "\n".join(lines[number:])
    return text


_CLASS = r"[A-Za-z_$] (?: [\w$.+/\\] | ::(?=\w) ){0,250}+"
_CODE = r"(?: [ ] \( (?:0x)? [0-9A-F]{1,10} \) | [ ] \[ \w{1,50} \] )?"  # .NET's and Node's
_NAMED = re.compile(rf"\A {_CLASS} {_CODE} (?: : | \n? \Z )", _VERBOSE)
_FOUND_INSIDE = re.compile(
    rf"""
    (?<! [^\s:(] )      # at the beginning, or after a blank, a colon, a parenthesis
    [A-Za-z_$] [\w$.+\\]{{0,250}} (?:{"|".join(_ENDINGS)}) :[ ]
    """,
    _VERBOSE,
)
_HEAD_CLASS = re.compile(rf"\A (?P<name> {_CLASS} ) {_CODE} (?: :[ ] | :? \s*+ \Z )", _VERBOSE)
_STACK = re.compile(r"\n [ \t]{1,8} at[ ] | Traceback[ ]\(", _VERBOSE)
_RUBY_HEAD = re.compile(
    r"""
    \A \S{1,300} : \d+ :in[ ] [`'] [^'\n]*+ ' :[ ] (?P<message> [^\n]* ) [ ]
    \( (?P<name> [A-Z] [\w:]* ) \)
    """,
    _VERBOSE,
)
_CAMEL_HEAD = re.compile(
    rf"\A \[ (?P<name> {_CLASS} ) [ ]-[ ] (?P<message> .* ) \] \s*+ \Z", _VERBOSE | re.DOTALL
)
"""CamelExchangeException.createExceptionMessage."""
_PHP_FILE = re.compile(r"[ ]in[ ] (?: / | [A-Za-z]:\\ ) [^\n]{0,300}? \.php : \d+ \Z", _VERBOSE)


def _head(root: str) -> str:
    """Return what stands before the frames: `class: message`, or some words, from an exception's name in them
    on."""
    root = stack.before_frames(root[:_LONGEST_ROOT])[:_LONGEST_HEAD]
    root = _PHP_FILE.sub("", root)
    if ruby := _RUBY_HEAD.match(root):
        return f"{ruby['name']}: {ruby['message']}"
    camel = _CAMEL_HEAD.match(root)
    if camel and not _FOUND_INSIDE.search(root):
        return f"{camel['name']}: {camel['message']}".removesuffix(": null")
    if _NAMED.match(root) or ": " not in root:
        return root
    inside = _FOUND_INSIDE.search(root)
    return root[inside.start() :] if inside else root


def _class_of(first: str, text: str, is_cause: bool) -> str | None:
    """Return the class that a head begins with: named like an exception, dotted and with a stack below, or
    what a chain names as its cause."""
    found = _HEAD_CLASS.match(first)
    name = found["name"] if found else ""
    has_stack = bool(_STACK.search(text))
    if name.endswith(_ENDINGS) or ("." in name and has_stack):
        return name
    return name if is_cause and _is_thrown(name, text, has_stack) else None


def _is_thrown(name: str, text: str, has_stack: bool) -> bool:
    """Return whether what follows a chain's `Caused by: ` is a class. One word may also be people's
    (`Database: it is down`): its line must be the chain's own, and it has a stack, or a name like NoStock."""
    packages, dot, simple = name.rpartition(".")
    if not simple[:1].isupper():
        return False
    if dot and packages:
        return True
    is_told = any(f"\n{line}" in f"\n{text}" for line in (f"Caused by: {name}", f"caused by: {name}"))
    is_told |= f"[cause]: {name}" in text or f"{_IN_BRACKETS}{name} - " in text
    return is_told and (has_stack or len(re.findall("[A-Z]", name)) > 1)


def _message_of(first: str, name: str) -> str | None:
    """Return what follows the class."""
    rest = first[len(name) :]
    return rest.partition(":")[2].lstrip(" ") or None


# --- What family an exception is of ---


def _family(words: str, status: str = "") -> re.Pattern[str]:
    """Compile the words of a family, in lower case, or an HTTP status of it.

    A status is not any number: `HTTP 504`, `status code: 504`, `HTTP/1.1 504`, or first of all. Every
    alternative begins with a letter or digit, which lets a search skip; what stands before is asked after.
    """
    if status:
        number = rf"[^\d\n]{{0,12}} (?: \d\.\d[ ] )? (?:{status}) (?u:\b)"
        begins = (f"{word} (?<= (?u:\\b) {word}) {number}" for word in ("http", "status", "code"))
        words = " | ".join([words, rf"{status} (?<=\A{status}) (?u:\b)", *begins])
    return re.compile(words, _VERBOSE)


FAMILIES: Mapping[str, re.Pattern[str]] = {
    "timeout": _family(
        r"timeout | timed[ ]?out | deadline[ ]?exceeded | no[ ]answer[ ]in[ ]time", status="504"
    ),
    "connection": _family(
        r"""connect | socket | unreachable | refused | broken[ ]?pipe | unknownhost | unavailable
        | reset[ ]by[ ]peer | bad[ ]gateway""",
        status="50[23]",
    ),
    "throttled": _family(rf"throttl | rate{_ANY}?limit | too[ ]many[ ]requests | quota", status="429"),
    "auth": _family(
        rf"""authenticat | authori[sz] | unauthori | denied | forbidden | credential
        | access{_ANY}?token | securityex""",
        status="40[13]",
    ),
    "duplicate": _family(
        rf"""duplicate{_ANY}?(?:key|entry) | unique{_ANY}?(?:constraint|violation|index)
        | already{_ANY}?(?:exists|processed)"""
    ),
    "database": _family(
        r"""sql (?<=(?u:\b)sql) | sql(?:exception|error) | jdbc | hibernate | jpa (?<=(?u:\b)jpa) (?u:\b)
        | deadlock | dataaccess | dataintegrity | mongo | psycopg | dbupdate | integrityerror
        | operationalerror"""
    ),
    "serialization": _family(
        r"""json | xml (?<=(?u:\b)xml) | pars(?:e|ing) | seriali[sz] | messageconversion | marshal | decod
        | classcast | format | schema | avro | protobuf | unicode"""
    ),
    "validation": _family(
        r"""validat | constraintviolation | illegalargument | argument\w{0,300}exception | valueerror
        | invalid | required | missing | must[ ]not"""
    ),
    "not_found": _family(
        rf"not{_ANY}?found | nosuchelement | does[ ]not[ ]exist | keyerror | no[ ]such", status="404"
    ),
    "bug": _family(
        r"""nullpointer | nullreference | typeerror | attributeerror | nameerror | indexoutofbounds
        | indexerror | nosuchmethod | classnotfound | noclassdef | illegalstate | assertion"""
    ),
}
"""Family -> what its class or, failing that, its message looks like in lower case; the first that fits."""

_PLATFORM = ("java.", "javax.", "jakarta.", "System.", "builtins.")


def _classify(name: str | None, hint: str | None) -> str | None:
    """Return what kind of trouble it is: by the class, else by the message's beginning.

    What neither tells is `business` for a class of one's own, else `other`.
    """
    if name is None and hint is None:
        return None
    known = name and _family_of_class(name.rpartition(".")[2])
    if known := known or (hint and _family_of(hint)):
        return known
    return "other" if name is None or "." not in name or name.startswith(_PLATFORM) else "business"


def _family_of_class(name: str) -> str | None:
    return _family_of(name[:LONGEST_TEXT]) if len(name) > _LONGEST_HINT else _family_of_known(name)


def _family_of(text: str) -> str | None:
    lowered = _simplify(text).lower()
    return next((name for name, pattern in FAMILIES.items() if pattern.search(lowered)), None)


_family_of_known = lru_cache(maxsize=1024)(_family_of)  # classes are few


_OF_CONNECTORS = "org.apache.kafka.connect."
"""Kafka Connect's ConnectException is of any trouble of a connector's."""
_PANIC = re.compile(r"(?:panic(?: occurred)?|runtime error)\b", re.IGNORECASE)
"""How Go tells of a fault in the code."""
_AWAY = ("timeout", "connection", "throttled")
_CLASS_OF_NETWORKS = re.compile(
    r"""timeout | timedout | deadlineexceeded | connect | socket | unreachable | brokenpipe | unknownhost
    | nohttp | badgateway | throttl | ratelimit | toomany
    | (?:service|server|broker|node|endpoint|database|resource)\w{0,20}unavailable""",
    _VERBOSE,
)
_OF_NETWORKS = re.compile(
    r"""
      connection[ ]?(?:to[ ]\S{1,80}[ ])?(?:was[ ]|is[ ]|has[ ]been[ ])?
        (?:refused|reset|closed|lost|aborted|broken|failed|error|timed|unavailable|terminated|shut)
    | (?:cannot|can't|can[ ]not|could[ ]not|unable[ ]to|failed[ ]to|failure[ ]to)[ ](?:re)?connect
    | connect(?:ion|ing)?[ ](?:error|failure|timed|to[ ]\S{1,80}:\d) | (?:not|dis)[ ]?connected
    | dial[ ](?:tcp|udp) | econn | enotfound | ehostunreach | eai_again | unknown[ ]?host | no[ ]route[ ]to
    | (?:host|network|server|service|broker|node|endpoint)[ ](?:\S{1,80}[ ])?(?:is[ ])?(?:not[ ])?
        (?:reachable|unreachable|available|unavailable|down)
    | (?:temporarily|currently)[ ]unavailable | service[ ]unavailable
    | socket[ ](?:closed|error|exception|hang|reset|is) | broken[ ]?pipe | reset[ ]by[ ]peer
    | bad[ ]gateway | (?:\S[.-]\S{1,80}|localhost|\]):\d{3,5}(?u:\b)
    | (?u:\b)(?:to|at|from|with|tcp|host|server|broker|node|endpoint)[ ]\S{1,80}:\d{3,5}(?u:\b)
    | https?://\S{1,300}[ ](?:is[ ])?(?:unreachable|unavailable|refused)
    | (?:http|(?:status|response|error|with|returned|got|["'{(])[ _-]?code)[^\d\n]{0,12}
        (?:\d\.\d[ ])?(?:50[234]|429)(?u:\b)
    | status[ :=]{1,3}(?:50[234]|429)(?u:\b)
    | \A(?:50[234]|429)[ ](?::|null|server|client)
    | timed[ ]?out | deadline[ ]?exceeded | no[ ]answer[ ]in[ ]time | \A\W*timeout\W*\Z
    | timeout[ ](?:of[ ]\d|after|while|(?:a?wait|try|perform|connect|read)ing|expired|exceeded|occurred)
    | due[ ]to[ ](?:an?[ ])?(?:\S{1,80}[ ])?timeout
    | (?:connect(?:ion|ing)?|read|write|socket|request|response|gateway|query|statement|transaction|lock
        |server|service|network|operation|database|db|upstream|api|http|i/o)[ ]time-?out
        (?!\w|['"=]|:?[ ](?:-?\d|must|may|should|can|need|expect|is|has|value|param|propert|setting))
    | rate[^\n]{0,20}limit | too[ ]many[ ]requests | throttl | (?:api|request)[^\n]{0,40}quota
    | quota[^\n]{0,40}(?:api|request|per[ ](?:second|minute|hour|day))
    """,
    _VERBOSE,
)
"""The shape of a network's errors."""


def _family_that_holds(name: str | None, hint: str, found: str | None) -> str | None:
    """Return the family of an exception, as far as advice may rest on it.

    What is away or slow is said in the words of networks, not of a business, whose payments are refused and
    whose goods are unavailable, too, and not of a setting that is called timeout; a panic is a
    fault in the code, whatever it says.
    """
    if name is None and _PANIC.match(hint):
        return "bug"
    of_class = name and not name.startswith(_OF_CONNECTORS) and name.rpartition(".")[2]
    if found not in _AWAY or (of_class and _CLASS_OF_NETWORKS.search(of_class.lower())):
        return found
    lowered = _simplify(hint).lower()
    if _OF_NETWORKS.search(lowered):
        return found
    others = (kind for kind, pattern in FAMILIES.items() if kind not in _AWAY and pattern.search(lowered))
    return next(others, "other" if name is None or "." not in name else "business")


def _simplify(text: str) -> str:
    """Return the text with é for all letters and digits that are not ASCII, and marks on them; ¤ for all the
    rest.

    So words end where they did for Java, which takes `²` for no digit and an accent for its letter's part,
    and a Kelvin sign is no k.
    """
    if text.isascii():
        return text
    simple, of_word = [], False
    for character in text:
        category = unicodedata.category(character)
        if category != "Mn":
            of_word = category == "Nd" or category[0] == "L"
        kept = character < "\x80" or character in "\x85\u2028\u2029"
        simple.append(character if kept else "é" if of_word else "¤")
    return "".join(simple)


# --- A message without what varies ---

_VARIABLE = re.compile(
    r"""
      " [^"\n]{0,300}+ " | (?<! \w ) ' (?: [^'\n] | ' (?= \w ) ){0,300}+ ' (?! \w ) | ` [^`'\n]{0,300}+ [`']
    | « [^»\n]{0,300}+ » | » [^«\n]{0,300}+ « | [„“] [^“”\n]{0,300}+ [“”] | \[ [^\]\n]{0,300}+ \]
    | [a-zA-Z+]{2,10} :// \S+
    | [\w.+-]{1,300}+ @ [\w.-]+
    | (?: ORA- | AMQ | SQLSTATE[ ]? | [Ss]tatus[ ]code[ ] | HTTP[ ] ) \d+     # they tell failures apart
    | (?<! [\w.:,+-] ) [\w.:,+-]{0,300} \d [\w.:,+%-]*
    """,
    re.VERBOSE,
)
_TELLING = ("ORA-", "AMQ", "SQLSTATE", "status code ", "Status code ", "HTTP ")


def template(message: str | None) -> str | None:
    """Return the first line of a message without what varies: quoted text, addresses, ids, times, numbers."""
    if message is None:
        return None
    line = message[:_LONGEST_HINT].partition("\n")[0]
    return _VARIABLE.sub(lambda found: found[0] if found[0].startswith(_TELLING) else "?", line)
