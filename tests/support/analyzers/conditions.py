"""Conditions of rules, and what each is for one letter."""

import pyarrow as pa

from dlq.core.settings import Rule


def rule(where: str) -> Rule:
    return Rule("mine", where, "expired")


SAME = {
    "failure_text like '%504%' or exception_message like '%gateway%'": True,
    "headers['x-tenant'] = '42'": True,
    "headers['none'] = '42'": None,
    "deaths[0].reason = 'expired'": True,
    "size(deaths) > 2": False,
    "size(split(exception_message, 'x')) is null": True,
    "exists(deaths, d -> d.reason = 'expired')": True,
    "dead_at > now() - interval 1 day": False,
    "origin rlike '^o.*s$' and attempts between 1 and 3": True,
    "lower(upper(origin)) = 'orders' and length(origin) = 6": True,
    "cast(headers['x-tenant'] as int) > 41": True,
    "origin in ('orders', 'pay') and not (origin is null)": True,
    "coalesce(headers['none'], 'x') = 'x' -- a remark */": True,
    "origin <=> null": False,
    "get_json_object(body_text, '$.a.b') = 'c'": True,
    "get_json_object(failure_text, '$.a') is null or false": True,
    "headers['x-trace'] = 3 or origin = 'orders'": True,
    "headers['x-trace'] = 3": None,
    "dead_at > 'no time' or attempts % 0 is null": True,
    "'a_b' like 'a\\_b' and 'axb' not like 'a\\_b'": True,
    "cast(headers['x-half'] as int) = 1 and cast(-2.5 as bigint) = -2 and cast('1e3' as int) is null": True,
    "cast(headers['x-half'] as decimal) = 2": True,
    "exists(deaths, d -> d.reason = 'none')": None,
    "substring(origin, 0, 2) = 'or' and left(origin, instr(origin, 'x') - 1) = ''": True,
    "split(failure_text, ' ')[1] = '504'": True,
    "array_contains(map_keys(headers), 'x-tenant')": True,
    "origin = 'o\\'rders'": False,
    "concat('$', '{env:PATH}') = '${env:PATH}'": True,
    "'{\"code\":504' rlike '\"code\":504' and '{a' rlike '{a' and 'a{,3}' rlike 'a{,3}$' and 'aa' rlike '^a{2}$'": True,
    "'a504' rlike 'a(?P<n>[0-9]+)' and 'a]' rlike 'a[]x]' and 'a[' rlike 'a[[]' and '&' rlike '[a&&b]'": True,
    "'a504' rlike '(?P<a_>a)(?P<no_1>[0-9])(?P<no_2>[0-9])' and '\u03b1' rlike '\\\\P{^Greek}'": True,
    "'\u000b' rlike '[a\\\\S]' and ' ' rlike '[^\\\\S]' and 'a' rlike '[\\\\p{^Greek}]'": True,
    "' ' rlike '[a\\\\S]' or '\u03b1' rlike '[\\\\p{^Greek}]' or '\u03b1' rlike '\\\\p{^Greek}'": False,
    "'late\\n' rlike 'late$'": False,
    "'late\\nagain' rlike '(?m)late$' and 'a\\rb' rlike 'a.b' and not 'a\\nb' rlike 'a.b'": True,
    "'D\u00c9LAI' rlike '(?i)d\u00e9lai' and '\u212a' rlike '(?i)k' and 'A' rlike '(?i:a)'": True,
    "'7' rlike '[[:digit:]]' and '_' rlike '[[:word:]]' and not '7' rlike '[[:^xdigit:]]'": True,
    "'\u000b' rlike '\\\\s' or '\u000b' rlike '[\\\\s]'": False,
    "'\u000b' rlike '\\\\v' and '\u00e9a' rlike '\\\\ba' and 'S' rlike '\\\\123' and '\u03b1' rlike '\\\\p{Greek}'": True,
    "'a.b' rlike '\\\\Qa.b\\\\E' and not 'axb' rlike '\\\\Qa.b\\\\E' and 'a$' rlike '[$]'": True,
    "split('one {two', 'one {')[1] = 'two' and size(split('a|b', '[|]')) = 2 and split('a b', r'\\s')[1] = 'b'": True,
    "startswith(origin, 'ord') and contains(origin, 'der') and instr(origin, 'd') = 3": True,
}
"""Condition -> what it is for the letter below."""
REFUSED = (
    "attempts", "headers = 'x'", "dead_at = 5", "headers.x = 1 and attempts", "origin and true", "not attempts",
    "deaths = 1", "keys = 'a'", "headers['a']['b'] = 'c'", "case when attempts then true else false end",
    "exists(deaths, d -> d)", "exists(deaths, d -> d.count)", "persistent > 0", "contains(keys, 'a')",
    "get_json_object(headers, '$.a') = 'b'", "dead_at is true", "cast(attempts as date) is null",
    "length(attempts) > 2", "attempts like '2%'", "abs(origin) = 1", "size(headers) > 1", "headers[1] = 'a'",
    "startswith(body, 'a')", "no_such = 1", "deaths[0].nothing = 'x'", "size(origin) > 1",
    "split(origin, '|')[0] = 'a'", "split(origin, 'a||b')[0] = 'a'", "size(split(origin, '')) = 1",
    "origin rlike 'a(?=b)'", "origin like 'C:\\\\Users%'", "cast(dead_at as bigint) > 5", "cast(body as string) = 'a'",
)  # fmt: skip
"""What one engine would understand and the other would not, or neither."""
LETTER = pa.Table.from_pylist([
    {
        "origin": "orders", "attempts": 2, "failure_text": "answered 504", "exception_message": None,
        "headers": [("x-tenant", "42"), ("x-trace", "many"), ("x-half", "1.5")],
        "deaths": [{"reason": "expired"}, {"reason": None}], "body_text": '{"a": {"b": "c"}}',
        "dead_at": 0,
    }
], schema=pa.schema([
    ("origin", pa.string()), ("attempts", pa.int64()), ("failure_text", pa.string()),
    ("exception_message", pa.string()), ("headers", pa.map_(pa.string(), pa.string())),
    ("deaths", pa.list_(pa.struct([("reason", pa.string())]))), ("body_text", pa.string()),
    ("dead_at", pa.timestamp("us", "UTC")),
]))  # fmt: skip
