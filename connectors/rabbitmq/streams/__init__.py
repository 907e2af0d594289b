"""RabbitMQ's streams, which are read and never drained."""
