"""The node that tests of Kafka share."""

from support.brokers.kafka.fixtures import kafka, kafka_node

__all__ = ["kafka", "kafka_node"]
