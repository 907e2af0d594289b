"""How much may be made of the bytes of one letter: what reads it costs no more than its size allows."""

_ALWAYS, _TIMES = 4 * 2**20, 64


def most_unpacked(size: int) -> int:
    """Return how many bytes so many packed ones may become. Text and JSON become some five to twenty times as
    many; Deflate could make a thousand of one, Zstandard thirty thousand."""
    return max(_ALWAYS, _TIMES * size)
