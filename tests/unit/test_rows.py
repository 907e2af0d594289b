"""A test of many rows."""

import pytest
from support.rows import each_row


def test_each_row_that_fails_is_named_with_its_reason() -> None:
    @each_row(("a", "b"), [(1, 2), (2, 2), (3, 4)])
    def are_equal(a: int, b: int) -> None:
        assert a == b, "differs"

    with pytest.raises(AssertionError) as raised:
        are_equal()
    said = str(raised.value).splitlines()
    assert [line for line in said if "differs" in line] == ["(1, 2): differs", "(3, 4): differs"]
