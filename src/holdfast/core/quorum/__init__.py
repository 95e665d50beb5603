"""Who leads the metadata quorum: one voter's state machine, and the sets of voters it counts."""
