"""RabbitMQ: AMQP 0-9-1 and the management API."""
