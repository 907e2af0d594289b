"""AMQP 1.0 as RabbitMQ 4 and Artemis speak it: values, frames and messages without sockets, and a session."""
