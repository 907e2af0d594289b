"""The business key of a message, as the source's `key` setting names it.

message_id          the broker's or producer's message id (the default)
header:NAME         a header
property:NAME       a property (RocketMQ: KEYS, UNIQ_KEY; RabbitMQ: an AMQP basic property)
json:$.order.id     a member of a JSON body; objects by name, arrays by [index]
"""

import json
from collections.abc import Callable, Mapping
from functools import cache

from dlq.core.errors import ConfigError
from dlq.core.text import encodable, quote_value
from dlq.core.values.json_paths import EVERY, parse_path

KeyReader = Callable[[str | None, Mapping[str, str], Mapping[str, str], bytes], str | None]
"""(message id, headers, properties, body) -> business key."""


def _message_id(_argument: str) -> KeyReader:
    return lambda message_id, _headers, _properties, _body: message_id


def _header(name: str) -> KeyReader:
    return lambda _message_id, headers, _properties, _body: headers.get(name)


def _property(name: str) -> KeyReader:
    return lambda _message_id, _headers, properties, _body: properties.get(name)


def _json(path: str) -> KeyReader:
    steps = parse_path(path)
    if not steps or EVERY in steps:
        raise ConfigError(
            f"{quote_value(f'json:{path}')} is no path; write it like json:$.order.id or json:$.items[0].sku"
        )

    def read(
        _message_id: str | None, _headers: Mapping[str, str], _properties: Mapping[str, str], body: bytes
    ) -> str | None:
        try:
            return _walk(json.loads(body), steps)
        except (ValueError, RecursionError):
            return None

    return read


def _walk(value: object, steps: list[str | int]) -> str | None:
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return None
    return encodable(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    )


_READERS: Mapping[str, Callable[[str], KeyReader]] = {
    "message_id": _message_id,
    "header": _header,
    "property": _property,
    "json": _json,
}


@cache
def key_reader(spec: str | None) -> KeyReader:
    """Return the function that reads the key named by `spec`; raises ConfigError when it names nothing."""
    kind, _, argument = (spec or "message_id").partition(":")
    if kind not in _READERS or (kind != "message_id") != bool(argument):
        raise ConfigError(
            f"{quote_value(spec)} is unknown; use message_id, header:NAME, property:NAME or json:$.path"
        )
    return _READERS[kind](argument)
