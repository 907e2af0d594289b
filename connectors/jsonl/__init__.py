"""Letters as JSONL: what `dlq export` writes and `dlq import` reads."""
