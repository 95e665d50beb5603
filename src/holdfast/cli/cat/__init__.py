"""holdfast cat: kcat's flags on any Kafka."""
