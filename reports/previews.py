"""Previews in words: letters that no analysis has judged, shown by what each says alone."""

_BEYOND = "duplicates, transactions, bursts, incidents and your own rules"
LIMITS = f"A preview judges each letter alone; dlq analyze also knows {_BEYOND}."


def too_many(letters: int) -> str:
    """So many letters have neither a verdict nor a preview."""
    return f"{letters:,} letters have no verdict yet, too many for a preview: dlq analyze"
