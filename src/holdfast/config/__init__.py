"""Kafka's configuration keys: one registry, and the frozen settings objects made from it.

Nothing is imported here, so that a node loads only what it uses: take `TopicSettings` from
`config.topic`, `NodeSettings` from `config.node`, the look-ups from `config.registry`, and the
answers of DescribeConfigs from `config.describe`.
"""
