"""The texts in a pickle, which is never unpickled: to do so is to run what its sender wants."""

from itertools import islice

_MOST = 10_000
"""Steps of it that are looked at."""
_BEGINS = tuple(bytes((0x80, version)) for version in range(2, 6))
"""How pickles of these protocols begin."""


def texts_in(body: bytes) -> list[str] | None:
    """Return the texts in the order in which they stand there, as far as it can be read; None: it is no
    pickle. They are as hostile as the body."""
    if not body.startswith(_BEGINS):
        return None
    import pickletools  # and pydoc, for the few that are one

    found: list[str] = []
    try:
        for step, argument, _ in islice(pickletools.genops(body), _MOST):
            if isinstance(argument, str) and step.name not in ("GET", "PUT"):
                found.append(argument)
            elif isinstance(argument, bytes):
                found.append(argument.decode("utf-8", "backslashreplace"))
    except (ValueError, OverflowError, MemoryError):  # cut, or damaged
        pass
    return found
