"""Clusters that are not ours: their nodes are reached and hurt by their owner's own commands."""
