"""holdfast groups: kafka-consumer-groups' flags and text on any Kafka."""
