"""holdfast topics: kafka-topics' flags and text on any Kafka."""
