"""A light member of a consumer group: hundreds of them in one process, for benches and tests.

`light_classic` and `light_consumer` decide, and know no clock and no socket; `light_client` drives
one of them over a connection of its own, `light_crowd` many.
"""
