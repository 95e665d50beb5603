"""Ranges of partitions into columns: two ways, one result. `read_range` is what others call."""
