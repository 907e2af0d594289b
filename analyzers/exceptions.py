"""Exceptions: the root cause's class and message, its family, and a fingerprint that lasts.

Reads Java (`Caused by:`, nested exception is), .NET (` ---> `), Python tracebacks and Node stacks.
Everything is Spark SQL text over `verdict.error_class`, `error_message` and `error_text`; texts are
cut first, and no pattern repeats a group or two runs of the same characters, so that a hostile text
costs no more than its length.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dlq.analyzers.rule import cut, literal, part_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FINGERPRINT_VERSION = 1
LONGEST_TEXT = 65_536
LONGEST_MESSAGE = 2_000
LONGEST_HINT = 300

# No repeated groups: Java's matcher recurses for them, and a long text would end the JVM.
_CLASS = r"[A-Za-z_$][\w$.+/]{0,250}"
_SUFFIX = r"(?:Exception|Error|Throwable|Timeout|Failure|Fault|Interrupt|Warning|Abort|Rejected|Exit|Panic)"
_FRAMES = r"(?s)\r?\n\s{1,8}(?:at |---|\.\.\. \d|File \").*$"


def _status(codes: str) -> str:
    """An HTTP status, not any number: `HTTP 504`, `status code: 504`, `HTTP/1.1 504`, or first of all."""
    return rf"(?:^|\b(?:http|status|code)[^\d\n]{{0,12}}(?:\d\.\d )?)(?:{codes})\b"


FAMILIES: Mapping[str, str] = {
    "timeout": rf"timeout|timed ?out|deadline ?exceeded|no answer in time|{_status('504')}",
    "connection": (
        r"connect|socket|unreachable|refused|broken ?pipe|unknownhost|unavailable|reset by peer|bad gateway|"
        + _status("50[23]")
    ),
    "throttled": rf"throttl|rate.?limit|too many requests|quota|{_status('429')}",
    "auth": (
        r"authenticat|authori[sz]|unauthori|denied|forbidden|credential|access.?token|securityex|"
        + _status("40[13]")
    ),
    "duplicate": (
        r"duplicate.?(?:key|entry)|unique.?(?:constraint|violation|index)|already.?(?:exists|processed)"
    ),
    "database": (
        r"\bsql|sql(?:exception|error)|jdbc|hibernate|\bjpa\b|deadlock|dataaccess|dataintegrity|mongo"
        r"|psycopg|dbupdate|integrityerror|operationalerror"
    ),
    "serialization": (
        r"json|\bxml|pars(?:e|ing)|seriali[sz]|messageconversion|marshal|decod|classcast|format|schema|avro"
        r"|protobuf|unicode"
    ),
    "validation": (
        r"validat|constraintviolation|illegalargument|argument\w*exception|valueerror|invalid|required"
        r"|missing|must not"
    ),
    "not_found": rf"not.?found|nosuchelement|does not exist|keyerror|no such|{_status('404')}",
    "bug": (
        r"nullpointer|nullreference|typeerror|attributeerror|nameerror|indexoutofbounds|indexerror"
        r"|nosuchmethod|classnotfound|noclassdef|illegalstate|assertion"
    ),
}
"""Family -> what its class or, failing that, its message looks like; the first that fits."""

_LIBRARIES = (
    r"(?:java|javax|jakarta|jdk|sun|com\.sun|kotlin|kotlinx|scala|groovy|reactor|okhttp3?|internal|node"
    r"|org\.(?:springframework|hibernate|apache|eclipse|postgresql|junit)"
    r"|com\.(?:rabbitmq|zaxxer|mysql|fasterxml|google)|io\.(?:netty|micrometer|grpc|vertx)"
    r"|System|Microsoft|MassTransit|NServiceBus|EasyNetQ|Rebus|RabbitMQ|Npgsql|Newtonsoft)[./]"
)
_JVM_FRAME = rf"(?:^|\n)[ \t]{{0,8}}at (?:[\w.@-]{{1,99}}/){{0,2}}(?!{_LIBRARIES})([\w.$`<>+/\[\]-]+)\("
_NODE_FRAME = r"(?:^|\n)[ \t]{0,8}at (?:async )?(?!.*node_modules)([\w.$<>]+) \("
_PYTHON_FRAME = (
    r"(?s).*\n[ \t]{1,8}File \"(?![^\"\n]*(?:site-packages|lib/python|<frozen))(?:[^\"\n]*/)?([^\"\n/]+)\""
    r", line \d+, (in [\w<>.]+)"
)
_STACK = r"\n[ \t]{1,8}at |Traceback \("
_GENERATED = r"\d+|\$\$.*"
_VARIABLE = (
    r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[\w.+-]+@[\w.-]+|https?://\S+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b"
    r"|\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{6,}\b|\d[\d.,:TZ+-]*"
)


def _matches(text: str, pattern: str) -> str:
    return f"{text} RLIKE {literal(pattern)}"


def _without(text: str, pattern: str, instead: str = "") -> str:
    return f"regexp_replace({text}, {literal(pattern)}, {literal(instead)})"


_TRACEBACK = "error_text LIKE '%Traceback (most recent call last)%'"
_INNER = _without("substring_index(error_text, ' ---> ', -1)", r"^\(Inner Exception #\d+\) ")
_LAST_OF_TRACEBACK = _without("error_text", r"(?s)^.*\n[ \t][^\n]*\n(?=\S)")
_FOUND_INSIDE = part_of("head", rf"(?s)(?:^|[\s:(])([A-Za-z_$][\w$.+]{{0,250}}{_SUFFIX}: .*)$")
_FILE, _FUNCTION = part_of("error_text", _PYTHON_FRAME), part_of("error_text", _PYTHON_FRAME, 2)
_PYTHON_PLACE = f"nullif(concat_ws(' ', {_FILE}, {_FUNCTION}), '')"
_PLACES = (
    f"{part_of('root', _JVM_FRAME)}, {part_of('error_text', _JVM_FRAME)}, {part_of('root', _NODE_FRAME)}"
)
_FAMILY = " ".join(
    f"WHEN {_matches(text, f'(?i){pattern}')} THEN {literal(name)}"
    for text in ("class_name", "hint")
    for name, pattern in FAMILIES.items()
)
_OF_THE_PLATFORM = _matches("exception_class", r"^(?:java|javax|jakarta|System|builtins)\.|^[^.]*$")

_NAMED, _FOUND = _matches("head", rf"^{_CLASS}(?::|$)"), f"coalesce({_FOUND_INSIDE}, head)"
_TEMPLATE = _without("hint", _VARIABLE, "?")
_SAID = "coalesce(nullif(trim(verdict.error_text), ''), verdict.error_message)"
_BLANKS = (" ", "\n", "\r", "\t")
_ENDS_BLANK = " OR ".join(
    f"{end}with(error_text, {literal(b)})" for b in _BLANKS for end in ("starts", "ends")
)
_TRIMMED = f"trim(BOTH {literal(''.join(_BLANKS))} FROM error_text)"

TEXT: tuple[Mapping[str, str], ...] = (
    {"error_text": _SAID},
    # Trimming and counting look at every character, so only where it is needed.
    {
        "error_text": (
            f"CASE WHEN octet_length(error_text) > {LONGEST_TEXT} OR {_ENDS_BLANK} "
            f"THEN substring({_TRIMMED}, 1, {LONGEST_TEXT}) ELSE error_text END"
        )
    },
    {
        # From the root cause on.
        "root": (
            "CASE WHEN error_text LIKE '%Caused by: %' THEN substring_index(error_text, 'Caused by: ', -1) "
            "WHEN error_text LIKE '%nested exception is %' "
            "THEN substring_index(error_text, 'nested exception is ', -1) "
            f"WHEN error_text LIKE '% ---> %' THEN {_INNER} "
            f"WHEN {_TRACEBACK} THEN {_LAST_OF_TRACEBACK} ELSE error_text END"
        )
    },
    # Without the frames: `class: message`, or some words.
    {"head": f"substring({_without(cut('root', 8192), _FRAMES)}, 1, 4096)"},
    {"head": f"CASE WHEN {_NAMED} THEN head ELSE {_FOUND} END"},
    {"head_class": part_of("head", rf"^({_CLASS})(?:: |:?\s*$)")},
    {
        "head_class": (
            f"CASE WHEN {_matches('head_class', f'{_SUFFIX}$')} "
            f"OR (head_class LIKE '%.%' AND {_matches('error_text', _STACK)}) THEN head_class END"
        )
    },
    {
        "exception_class": "coalesce(head_class, nullif(verdict.error_class, ''))",
        "exception_message": (
            f"substring(CASE WHEN head_class IS NOT NULL THEN {part_of('head', rf'(?s)^{_CLASS}:[ ]*(.*)$')} "
            f"ELSE coalesce(nullif(verdict.error_message, ''), head) END, 1, {LONGEST_MESSAGE})"
        ),
    },
    # Enough to know an exception by. Families ask a dozen times, so it is cut once.
    {
        "class_name": "substring_index(exception_class, '.', -1)",
        "hint": f"substring(exception_message, 1, {LONGEST_HINT})",
    },
    {
        "exception_family": (
            f"CASE WHEN coalesce(exception_class, exception_message) IS NULL THEN NULL {_FAMILY} "
            f"WHEN exception_class IS NULL OR {_OF_THE_PLATFORM} THEN 'other' ELSE 'business' END"
        ),
        "frame": f"CASE WHEN {_TRACEBACK} THEN {_PYTHON_PLACE} ELSE coalesce({_PLACES}) END",
    },
    {"place": f"coalesce({_without('frame', _GENERATED)}, {_TEMPLATE})"},
    {
        # Without an exception a fingerprint says where letters of this cause died.
        "fingerprint": (
            f"substring(sha2(concat_ws('|', {FINGERPRINT_VERSION}, verdict.cause, "
            "CASE WHEN coalesce(exception_class, place) IS NULL "
            "THEN concat_ws('|', verdict.mechanism, coalesce(verdict.origin, dead_letter_queue)) "
            "ELSE concat_ws('|', coalesce(exception_class, ''), coalesce(place, '')) END), 256), 1, 16)"
        ),
        "fingerprint_version": str(FINGERPRINT_VERSION),
    },
)
"""Columns in steps: a step reads those before it."""

_SCRATCH = ("root", "head", "head_class", "class_name", "hint", "frame", "place")


def explain(decided: "DataFrame") -> "DataFrame":
    """Adds exception_class, exception_message, exception_family, fingerprint and its version."""
    from pyspark.sql import functions as F

    for step in TEXT:
        decided = decided.withColumns({name: F.expr(text) for name, text in step.items()})
    return decided.drop(*_SCRATCH)
