"""holdfast metadata-quorum: what the quorum looks like, and who votes in it."""
