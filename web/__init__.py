"""What people and agents use instead of a shell: the page (`dlq serve`), and tools (`dlq mcp`)."""
