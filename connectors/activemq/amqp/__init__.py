"""AMQP 1.0, for what came by it."""
