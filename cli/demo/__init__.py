"""What `dlq demo` shows."""
