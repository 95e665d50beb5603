"""What a group coordinator decides: members, generations and committed offsets of one shard."""
