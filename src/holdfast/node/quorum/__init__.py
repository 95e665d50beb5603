"""A controller in the quorum: it performs what core.quorum decides."""
