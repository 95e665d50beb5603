"""One replica on disk, in Apache Kafka's formats, and the directories that hold replicas."""
