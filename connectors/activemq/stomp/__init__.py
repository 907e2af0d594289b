"""STOMP 1.2, by which both brokers are read."""
