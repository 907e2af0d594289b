"""Stores outside that know what became of a message: what `[evidence]` asks."""
