"""From TOML data and the environment to settings: every key known, every value typed, every name sound.

What it does not know it refuses, and suggests the name that was probably meant. Reads no file.
"""

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from typing import Any

from dlq.core import documents
from dlq.core.brokers import REGISTRY, plugin_of, plugins
from dlq.core.errors import ConfigError
from dlq.core.settings import (
    Analysis,
    Broker,
    Consumer,
    Evidence,
    Ledger,
    Mask,
    Profile,
    Replay,
    Retain,
    Roles,
    Rule,
    Serve,
    Settings,
    Source,
    Spark,
)
from dlq.core.text import quote_value, shorten
from dlq.core.values import masks
from dlq.core.values.checks import check
from dlq.core.values.suggestions import suggest

LONGEST_NAME = 100
"""Characters: of brokers and sources there are files and locks, and no file system has room for 256."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}")
_NAMED: Mapping[str, type] = {
    "brokers": Broker,
    "sources": Source,
    "evidence": Evidence,
    "consumers": Consumer,
    "profiles": Profile,
}
_LISTED: Mapping[str, type] = {"rules": Rule}
SINGLE: Mapping[str, type] = {
    "retain": Retain,
    "mask": Mask,
    "ledger": Ledger,
    "replay": Replay,
    "analysis": Analysis,
    "serve": Serve,
    "spark": Spark,
}
_TABLES = (Roles,)
"""Types of settings that are tables within a table."""
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list of tables",
    tuple: "a list of texts",
    Mapping: "a table",
}
"""Types as a user of TOML calls them."""
_hints = cache(typing.get_type_hints)
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_LONGEST_PLACE = 200
_NO_SUCH_KEY = "; take it out"
TOP = ("archive", *_NAMED, *_LISTED, *SINGLE)


def parse(data: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Read typed settings from TOML data and `DLQ_*` variables; raises ConfigError naming the place."""
    for name in data:
        if name not in TOP:
            raise ConfigError(f"unknown key {quote_value(name)}{suggest(name, TOP) or _NO_SUCH_KEY}")
    given = environment or {}
    archive = _read_value("archive", data.get("archive", "./archive"), str)
    values: dict[str, Any] = {"archive": given.get("DLQ_ARCHIVE", archive)}
    if isinstance(data.get("mask"), list):
        raise ConfigError(masks.OLD)
    for section, made_as in _NAMED.items():
        tables = _table(section, data.get(section, {}))
        kinds = {name: _of_kind(section, name, tables[name], values, given) or made_as for name in tables}
        built = {name: _build(f"{section}.{name}", kinds[name], tables[name], name) for name in tables}
        values[section] = {
            name: _apply_variables(f"{section}_{name}", one, given) for name, one in built.items()
        }
    for section, made_as in _LISTED.items():
        rows = _read_value(section, data.get(section, []), list)
        values[section] = tuple(_build(f"{section}[{i}]", made_as, row) for i, row in enumerate(rows))
    for section, made_as in SINGLE.items():
        values[section] = _apply_variables(section, _build(section, made_as, data.get(section, {})), given)
    settings = Settings(**values)
    check(settings)
    return settings


def _of_kind(
    section: str, name: str, table: Any, values: Mapping[str, Any], environment: Mapping[str, str]
) -> type | None:
    """Return what a broker's table, or that of a source on it, may hold; None: nothing of its kind's own."""
    if section not in ("brokers", "sources") or not isinstance(table, Mapping):
        return None
    decides = "kind" if section == "brokers" else "broker"
    kind = named = environment.get(_variable(f"{section}_{name}", decides), table.get(decides))
    if section == "sources":
        broker = values["brokers"].get(named) if isinstance(named, str) else None
        return plugin_of(broker.kind).source if broker else None
    if isinstance(kind, str) and kind not in REGISTRY:
        known = ", ".join(REGISTRY)
        raise ConfigError(
            f"brokers.{name}.kind = {quote_value(kind)} is unknown{suggest(kind, REGISTRY)}; "
            f"known are {known}"
        )
    return plugin_of(kind).settings if isinstance(kind, str) else None


def _table(place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"[{place}] must be a table, not {quote_value(value)}")
    return value


def _build(place: str, made_as: type, table: Any, name: str | None = None) -> Any:
    known = {f.name: f for f in fields(made_as) if f.name != "name" or name is None}
    hints = _hints(made_as)
    values: dict[str, Any] = {} if name is None else {"name": check_name(f"[{place}]", name)}
    for key, value in _table(place, table).items():
        if key not in known:
            raise ConfigError(
                _of_others(place, key)
                or f"unknown key {quote_value(key)} in [{place}]{suggest(key, known) or _NO_SUCH_KEY}"
            )
        at, wanted = f"{place}.{key}", hints[key]
        values[key] = _build(at, wanted, value) if wanted in _TABLES else _read_value(at, value, wanted)
    missing = [
        n
        for n, f in known.items()
        if n not in values and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise ConfigError(f"[{place}] lacks {missing[0]!r}; add it")
    return made_as(**values)


def _of_others(place: str, key: str) -> str | None:
    """Return what to say of a key that only other kinds of brokers have."""
    section = place.partition(".")[0]
    tables = {"brokers": "settings", "sources": "source"}
    owners = [
        name
        for name, kind in (plugins().items() if section in tables else ())
        if key in (each.name for each in fields(getattr(kind, tables[section])))
    ]
    return f"{place}.{key} is for {' and '.join(owners)} alone; take it out" if owners else None


def check_name(place: str, name: str) -> str:
    """Return `name`, where a broker, a source, a store or a profile may be called so; raises ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{shorten(place, _LONGEST_PLACE)}: a name has letters, digits, '.', '_' and '-' only, and "
            f"{LONGEST_NAME} of them at most; rename it"
        )
    return name


def _read_value(place: str, value: Any, wanted: Any) -> Any:
    options = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    origins = [typing.get_origin(option) or option for option in options]
    if isinstance(value, Mapping) and Mapping in origins:
        return {_without_nul(place, key): _as_text(f"{place}.{key}", each) for key, each in value.items()}
    try:
        is_one = isinstance(value, str) and tuple in origins
        found = documents.value(wanted, [value] if is_one else value)
    except ValueError as error:
        names = " or ".join(_WORDS[origin] for origin in origins if origin is not type(None))
        raise ConfigError(f"{place} must be {names}, not {quote_value(value)}") from error
    for text in found if isinstance(found, tuple) else [found]:
        if isinstance(text, str):
            _without_nul(place, text)
    return found


def _as_text(place: str, value: Any) -> str:
    """Return a value of a table that takes any, as Spark reads it. Raises ConfigError."""
    if not isinstance(value, str | bool | int | float) or (isinstance(value, int) and abs(value) >> 64):
        raise ConfigError(f"{place} must be text, a number, or true or false, not {quote_value(value)}")
    return str(value).lower() if isinstance(value, bool) else _without_nul(place, str(value))


def _without_nul(place: str, text: str) -> str:
    """Refuse NUL: no kernel takes it in a file's name or a program's argument. Raises ConfigError."""
    if "\0" in text:
        raise ConfigError(f"{place}: {quote_value(text)} holds NUL; take it out")
    return text


def _apply_variables(place: str, current: Any, environment: Mapping[str, str]) -> Any:
    """Return settings as DLQ_LEDGER_URL, DLQ_SPARK_MASTER, DLQ_BROKERS_SHOP_URL, ... change them: the file in
    text."""
    given: dict[str, Any] = {}
    for name, wanted in _hints(current.__class__).items():
        variable = _variable(place, name)
        if name != "name" and variable in environment:
            given[name] = _of_text(variable, environment[variable], wanted)
    return replace(current, **given)


def _variable(place: str, name: str) -> str:
    return re.sub("[-.]", "_", f"DLQ_{place}_{name}".upper())


def _of_text(variable: str, text: str, wanted: Any) -> Any:
    """Return a variable's text as its setting's type; raises ConfigError."""
    options = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    if bool in options and text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    if str in options:
        return text
    if int in options and _INTEGER.fullmatch(text):
        return int(text)
    if any(typing.get_origin(option) is tuple for option in options):
        return tuple(item.strip() for item in text.split(",") if item.strip())
    wish = "true or false" if bool in options else "a whole number" if int in options else "set in the file"
    raise ConfigError(f"{variable} must be {wish}, not {quote_value(text)}")
