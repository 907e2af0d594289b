"""AMQP 1.0, for the letters that 0-9-1 cannot carry."""
