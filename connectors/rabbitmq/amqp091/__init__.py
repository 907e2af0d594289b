"""AMQP 0-9-1 on the wire: frames, property blocks, and a connection with one channel."""
