"""Spark reads a Kafka log into tables, exactly once.

`session` starts Spark, `source` is `format("holdfast")`, `sink` commits rows and offsets in one
transaction, `ledger` and `lines` are the demo's two recipes. Nothing here imports a broker's code.
"""
