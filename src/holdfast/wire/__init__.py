"""Kafka's wire protocol: messages, record batches, frames, errors. Owns bytes and their meaning.

Must never open a socket or a file, nor import anything else of ours.
"""
