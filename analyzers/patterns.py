r"""Regular expressions of the users' rules: they mean what they mean to RE2, the engine of DuckDB, which
refuses what is none. To Java, the engine of Spark, some signs mean something else (`$`, `\s`, `(?i)`), or are
an error (`{` alone).
"""

import re

_PIECES = re.compile(
    r"""
      \\Q (?P<quoted> .*? ) (?: \\E | \Z )
    | (?P<escape> \\ (?: [0-7]{2,3} | [pPx]\{[^}]*\} | . ) )
    | \[ (?P<inside> \^?\]? (?: \[:\^?\w+:\] | \\. | [^\]\\] )* ) \]
    | \(\? (?P<flags> P?<\w+> | [a-zA-Z-]+ (?=[:)]) )
    | (?P<times> \{\d+(?:,\d*)?\} ) | (?P<sign> [{}$] )
    """,
    re.VERBOSE | re.DOTALL,
)
_INSIDE = re.compile(
    r"(?P<first>\A\^?\])|(?P<escape>\\(?:[0-7]{2,3}|[pPx]\{[^}]*\}|.))|\[:(?P<named>\^?\w+):\]|(?P<sign>[\[&])",
    re.DOTALL,
)
"""Of what stands in brackets."""
_LINES = re.compile(r"\(\?[a-zA-Z]*m")
_SCRIPT = re.compile(r"(?<=\A\\[pP]\{)(?=\w{3})")
_ESCAPES = {
    r"\v": r"\x0B", r"\s": r"[\t\n\f\r ]", r"\S": r"[^\t\n\f\r ]",
    r"\b": r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))", r"\B": r"(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))",
}  # fmt: skip
_ESCAPES_INSIDE = {r"\v": r"\x0B", r"\s": r"\t\n\f\r ", r"\S": r"[^\t\n\f\r ]"}
_NAMES = {"ascii": "ASCII", "xdigit": "XDigit"}


def in_java(pattern: str) -> str:
    """Return a pattern that RE2 takes in words by which it means the same to Java."""
    end = "$" if _LINES.search(pattern) else r"\z"
    return "(?d)" + _PIECES.sub(lambda found: _write(found, end), pattern)  # only \n ends a line


def _write(found: re.Match[str], end: str) -> str:
    quoted, escape, inside, flags, times, sign = found.groups()
    if quoted is not None:
        return re.escape(quoted)
    if escape or times:
        return _ESCAPES.get(escape) or _escape(escape) if escape else found[0]
    if inside is not None:
        return f"[{_INSIDE.sub(_write_inside, inside)}]"
    if flags:
        # Nobody asks for a group by its name, and to Java many names are none.
        return "(" if flags.endswith(">") else f"(?{flags.replace('i', 'iu').replace('U', '')}"
    return end if sign == "$" else f"\\{sign}"


def _write_inside(found: re.Match[str]) -> str:
    first, escape, named, sign = found.groups()
    if escape:
        return _ESCAPES_INSIDE.get(escape) or _escape(escape)
    if named:
        name = named.lstrip("^")
        kind = "w" if name == "word" else f"p{{{_NAMES.get(name, name.title())}}}"
        return f"\\{kind[0].upper() if named != name else kind[0]}{kind[1:]}"
    return first.replace("]", r"\]") if first else f"\\{sign}"


def _escape(escape: str) -> str:
    r"""Write `\123` and `\p{Greek}` as Java does; of other escapes both say the same."""
    if escape[2:4] == "{^":
        escape = f"\\{escape[1].swapcase()}{{{escape[4:]}"
    return f"\\0{escape[1:]}" if escape[1:].isdigit() else _SCRIPT.sub("Is", escape)
