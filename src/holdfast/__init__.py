"""holdfast: a log that speaks the Kafka protocol, and a lab that proves what it keeps."""

__version__ = "0.1.0"
