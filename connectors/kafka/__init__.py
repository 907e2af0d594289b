"""Apache Kafka: topics of dead letters, whoever writes them."""
