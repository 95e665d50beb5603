"""Groups in a simulation: their members, what is done to them, and an oracle of what is committed.

The oracle reads `__consumer_offsets` itself as it is committed, and holds every answer to that.
"""
