"""How far a query is, told to a consumer group of the topic's cluster, for tools that show lag.

`group` is what stands in a source's offsets, `ends` what a batch tells whom, `commits` tells it,
`follow` does so for sinks that are not ours. Nothing here is ever read back by a query.
"""
