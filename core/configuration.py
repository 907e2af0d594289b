"""From TOML data and the environment to settings: every key known, every value typed, every name sound.

What it does not know it refuses, and suggests the name that was probably meant. Reads no file.
"""

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from dlq.core import keys, units
from dlq.core.causes import ADVICE, CAUSES
from dlq.core.errors import ConfigError
from dlq.core.settings import (
    BROKER_KINDS,
    EVIDENCE_KINDS,
    RETAIN_STATES,
    Broker,
    Evidence,
    Ledger,
    Mask,
    Profile,
    Replay,
    Retain,
    Rule,
    Settings,
    Source,
    Spark,
    suggest,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NAMED: Mapping[str, type] = {"brokers": Broker, "sources": Source, "evidence": Evidence, "profiles": Profile}
_LISTED: Mapping[str, type] = {"rules": Rule, "mask": Mask}
_SINGLE: Mapping[str, type] = {"retain": Retain, "ledger": Ledger, "replay": Replay, "spark": Spark}
_REDIS = ("redis", "rediss")
_DATABASES = ("postgresql", "postgres", "mysql", "mariadb", "sqlite")
_EVIDENCE_SCHEMES: Mapping[str, tuple[str, ...]] = {
    "rocketmq-dedup": (*_REDIS, *_DATABASES),
    "shine-mq": _REDIS,
}
_TABLE = re.compile(r"([A-Za-z_]\w*\.)?[A-Za-z_]\w*")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_TOP = ("archive", *_NAMED, *_LISTED, *_SINGLE)


def parse(data: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Typed settings from TOML data and `DLQ_*` variables; raises ConfigError naming the place."""
    for name in data:
        if name not in _TOP:
            raise ConfigError(f"unknown key {name!r}{suggest(name, _TOP)}")
    values: dict[str, Any] = {"archive": _typed("archive", data.get("archive", "./archive"), str)}
    for section, made_as in _NAMED.items():
        tables = _table(section, data.get(section, {}))
        values[section] = {
            name: _build(f"{section}.{name}", made_as, table, name) for name, table in tables.items()
        }
    for section, made_as in _LISTED.items():
        rows = _typed(section, data.get(section, []), list)
        values[section] = tuple(_build(f"{section}[{i}]", made_as, row) for i, row in enumerate(rows))
    for section, made_as in _SINGLE.items():
        values[section] = _build(section, made_as, data.get(section, {}))
    settings = Settings(**_with_environment(values, environment or {}))
    _check(settings)
    return settings


def _table(place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"[{place}] must be a table, not {value!r}")
    return value


def _build(place: str, made_as: type, table: Any, name: str | None = None) -> Any:
    known = {f.name: f for f in fields(made_as) if f.name != "name" or name is None}
    hints = typing.get_type_hints(made_as)
    values: dict[str, Any] = {} if name is None else {"name": _checked_name(place, name)}
    for key, value in _table(place, table).items():
        if key not in known:
            raise ConfigError(f"unknown key {key!r} in [{place}]{suggest(key, known)}")
        values[key] = _typed(f"{place}.{key}", value, hints[key])
    missing = [
        n
        for n, f in known.items()
        if n not in values and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise ConfigError(f"[{place}] lacks {missing[0]!r}")
    return made_as(**values)


def _checked_name(place: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"[{place}]: a name has letters, digits, '.', '_' and '-' only")
    return name


def _typed(place: str, value: Any, wanted: Any) -> Any:
    options = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    for option in options:
        origin = typing.get_origin(option) or option
        if origin is tuple and isinstance(value, list | tuple | str):
            items = [value] if isinstance(value, str) else value
            if all(isinstance(item, str) for item in items):
                return tuple(items)
        elif origin in (dict, Mapping) or origin is Mapping.__class__:
            pass
        elif (
            origin is not type(None)
            and isinstance(value, origin)
            and not (origin is int and isinstance(value, bool))
        ):
            return value
    if isinstance(value, Mapping) and any(
        typing.get_origin(o) is not None and issubclass(typing.get_origin(o), Mapping) for o in options
    ):
        return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}
    names = " or ".join(getattr(o, "__name__", str(o)) for o in options if o is not type(None))
    raise ConfigError(f"{place} must be {names}, not {value!r}")


def _with_environment(values: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """DLQ_ARCHIVE, DLQ_LEDGER_URL, DLQ_SPARK_MASTER, DLQ_BROKERS_SHOP_URL, ...: the file in text."""

    def changed(place: str, current: Any) -> Any:
        given: dict[str, Any] = {}
        for name, wanted in typing.get_type_hints(type(current)).items():
            variable = re.sub("[-.]", "_", f"DLQ_{place}_{name}".upper())
            if name != "name" and variable in environment:
                given[name] = _of_text(variable, environment[variable], wanted)
        return replace(current, **given)

    values["archive"] = environment.get("DLQ_ARCHIVE", values["archive"])
    for section in _SINGLE:
        values[section] = changed(section, values[section])
    for section in _NAMED:
        values[section] = {name: changed(f"{section}_{name}", item) for name, item in values[section].items()}
    return values


def _of_text(variable: str, text: str, wanted: Any) -> Any:
    """A variable's text as its setting's type; raises ConfigError."""
    options = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    if str in options:
        return text
    if bool in options and text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    if int in options and _INTEGER.fullmatch(text):
        return int(text)
    if any(typing.get_origin(option) is tuple for option in options):
        return tuple(item.strip() for item in text.split(",") if item.strip())
    wish = "true or false" if bool in options else "a whole number" if int in options else "set in the file"
    raise ConfigError(f"{variable} must be {wish}, not {text!r}")


def _one_of(place: str, value: str | None, known: typing.Iterable[str]) -> None:
    if value is not None and value not in known:
        raise ConfigError(
            f"{place} = {value!r} is unknown{suggest(value, known)}; known are {', '.join(known)}"
        )


def _check(settings: Settings) -> None:
    for broker in settings.brokers.values():
        _one_of(f"brokers.{broker.name}.kind", broker.kind, BROKER_KINDS)
    for source in settings.sources.values():
        place = f"sources.{source.name}"
        _one_of(f"{place}.broker", source.broker, settings.brokers)
        _one_of(f"{place}.mode", source.mode, ("copy", "drain"))
        keys.key_reader(source.key)
        _check_place(place, source, settings.brokers[source.broker].kind)
    for store in settings.evidence.values():
        _check_store(f"evidence.{store.name}", store)
    for rule in settings.rules:
        _one_of(f"rules.{rule.name}.cause", rule.cause, CAUSES)
        _one_of(f"rules.{rule.name}.advice", rule.advice, ADVICE)
    for profile in settings.profiles.values():
        _one_of(f"profiles.{profile.name}.mode", profile.mode, ("copy", "drain"))
    for state in settings.retain.states:
        _one_of("retain.states", state, RETAIN_STATES)
    if settings.retain.max_size is not None:
        units.size(settings.retain.max_size)
    durations = [settings.ledger.lease, settings.replay.ramp_wait, settings.retain.max_age]
    durations += [
        value for profile in settings.profiles.values() for value in (profile.max_time, profile.alarm_timeout)
    ]
    for duration in durations:
        if duration is not None:
            units.seconds(duration)


def _check_store(place: str, store: Evidence) -> None:
    _one_of(f"{place}.kind", store.kind, EVIDENCE_KINDS)
    scheme, separator, rest = store.url.partition("://")
    if not separator:
        raise ConfigError(f"{place}.url is no URL; write it like redis://host:6379/0")
    _one_of(f"the scheme of {place}.url", scheme, _EVIDENCE_SCHEMES[store.kind])
    if ":" in rest.rpartition("@")[0] or "password=" in rest:
        raise ConfigError(f"{place}.url holds a password; put it into password_file, _command or _env")
    wrong = "table" if scheme in _REDIS else "prefix"
    if getattr(store, wrong) is not None:
        raise ConfigError(f"{place}.{wrong} means nothing to a {scheme} store")
    if store.table is not None and not _TABLE.fullmatch(store.table):
        raise ConfigError(f"{place}.table = {store.table!r} is no table; write it like t_rocketmq_dedup")
    if not store.sources:
        raise ConfigError(f"{place}.sources is empty; name sources, or leave it out for all")
    units.seconds(store.window)


def _check_place(place: str, source: Source, kind: str) -> None:
    wanted = {"rocketmq": "group or transactions", "memory": "queue or transactions"}.get(kind, "queue")
    given = {"queue": source.queue, "group": source.group, "transactions": source.transactions}
    named = [name for name, value in given.items() if value]
    if len(named) != 1 or named[0] not in wanted:
        raise ConfigError(f"[{place}] on a {kind} broker needs exactly one of: {wanted}")
