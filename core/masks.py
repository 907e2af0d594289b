"""`[[mask]]`: what the rules of masking may say."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from dlq.core.errors import ConfigError
from dlq.core.json_paths import parse_path
from dlq.core.settings import Mask
from dlq.core.text import quote_value

OF_HEADERS = ("message_id", "correlation_id", "keys", "key")
"""Columns with what a letter has in headers or properties, which rules mask by these names, too."""
_WORDS = ("cause", "source", "queue", "key", "record_id")


def check(place: str, rule: Mask) -> None:
    """Raises ConfigError for a rule that says nothing, or several things at once."""
    if sum(value is not None for value in (rule.header, rule.json, rule.pattern)) != 1:
        raise ConfigError(f"{place} needs exactly one of header, json, pattern")
    if rule.json is not None:
        steps(rule.json, f"{place}.json")
    if rule.pattern is not None:
        _check_pattern(f"{place}.pattern", rule.pattern)


def with_keys(rules: Sequence[Mask], keys: Iterable[str]) -> tuple[Mask, ...]:
    """The rules; where one masks what a source's `key` is made of, or a member of it, the column `key` is
    masked, too."""
    is_masked = any(_is_masked(rule, key) for key in keys for rule in rules)
    return (*rules, Mask(header="key")) if is_masked else tuple(rules)


def _is_masked(rule: Mask, key: str) -> bool:
    kind, _, name = key.partition(":")
    if kind != "json":
        return rule.header is not None and fnmatchcase((name or kind).lower(), rule.header.lower())
    if rule.json is None:
        return False
    return all(masked in ("*", step) for masked, step in zip(steps(rule.json), steps(name), strict=False))


def _check_pattern(place: str, pattern: str) -> None:
    """What finds something in each of some short words leaves nothing to be read."""
    found = compile_pattern(pattern, place)
    if found.search("") or all(map(found.search, _WORDS)):
        raise ConfigError(
            f"{place} = {quote_value(pattern)} finds something in every text; write a narrower one"
        )


def steps(path: str, place: str = "mask.json") -> list[str]:
    """`$.card.number`, `$.items[*].email`: names and indices; `*` is every member. Raises ConfigError."""
    found = parse_path(path)
    if not found:
        raise ConfigError(
            f"{place} = {quote_value(path)} is no path; write it like $.card.number or $.items[*].email"
        )
    return [str(step) for step in found]


def compile_pattern(pattern: str, place: str = "mask.pattern") -> re.Pattern[str]:
    """A pattern's regular expression. Raises ConfigError."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{place} = {quote_value(pattern)} is no regular expression, correct it: {error}"
        ) from error
