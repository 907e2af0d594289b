"""AMQP 1.0 as RabbitMQ 4 speaks it: values, frames and messages without sockets, and a session."""
