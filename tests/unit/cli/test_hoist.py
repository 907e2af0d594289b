import pytest
from support.rows import each_row

from dlq.cli.app import hoist
from dlq.core.errors import UsageError


@each_row(("words", "hoisted"), [
    ("ls -o csv", "-o csv ls"), ("ls -ocsv", "-o csv ls"), ("ls -o=csv", "-o csv ls"),
    ("ls -cdlq.toml --limit 5", "-c dlq.toml ls --limit 5"), ("ls -qv", "-q -v ls"),
    ("ls -qocsv", "-q -o csv ls"), ("ls -qo csv", "-q -o csv ls"),
    ("ls --output=csv --config x --quiet", "--output=csv --config x --quiet ls"),
    ("export -", "export -"), ("show -x", "show -x"), ("show -- -q", "show -- -q"),
])  # fmt: skip
def test_common_options_come_to_the_front_however_they_are_written(words: str, hoisted: str) -> None:
    assert hoist(words.split()) == hoisted.split()


@pytest.mark.parametrize("words", ["ls -o", "ls --config", "ls -qo"])
def test_a_common_option_without_its_value_is_named(words: str) -> None:
    with pytest.raises(UsageError, match=r"^-(o|-config) needs a value"):
        hoist(words.split())
