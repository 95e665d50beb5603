"""Committed offsets of groups of every kind."""
