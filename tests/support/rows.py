"""A test of many rows that counts as one test and names each row that fails."""

import inspect
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Test = Callable[..., None]


def each_row(
    names: str | Sequence[str], rows: Iterable[Any], ids: Iterable[str] | Callable[[Any], Any] | None = None
) -> Callable[[Test], Test]:
    """Run a test for each row of its parameters, written as for `pytest.mark.parametrize`, under one name.

    Raises AssertionError with each row that failed and why. For rows that cost next to nothing: a test
    of pytest's own costs some milliseconds each time that any test is collected.
    """
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    values = [row if len(words) > 1 else (row,) for row in rows]
    labels = [*ids] if isinstance(ids, Iterable) else [None] * len(values)

    def over_all(test: Test) -> Test:
        def run(**others: Any) -> None:
            failed = {}
            for label, row in zip(labels, values, strict=True):
                try:
                    test(**others, **dict(zip(words, row, strict=True)))
                except Exception as error:  # noqa: BLE001 - told below, beside those of other rows
                    failed[label or reprlib.repr(row)] = error
            if failed:
                raise AssertionError(
                    "\n".join(f"{label}: {str(error)[:500]}" for label, error in failed.items())
                )

        parameters = inspect.signature(test).parameters.values()
        kept = [one for one in parameters if one.name not in words]
        run.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return over_all
