"""The same steps against Apache Kafka and against us, and what they answer differently."""
