"""RocketMQ: the remoting protocol, dead-letter topics and transaction checks."""
