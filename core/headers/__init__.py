"""What brokers, frameworks and replays leave on a letter, in its headers or its body."""
