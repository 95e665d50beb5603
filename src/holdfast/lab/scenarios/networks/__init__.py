"""Scenarios in which a cluster's network breaks."""
