"""How far a query is: whose an offset is that tables remember, and what a consumer group is told.

`sources` says which source goes on with an offset. The rest is for tools that show lag: `group` is
what stands in a source's offsets, `ends` what a batch tells whom, `commits` tells it, `follow` does
so for sinks that are not ours; nothing of that is ever read back by a query.
"""
