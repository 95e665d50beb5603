"""Scenarios on clusters that are not the lab's own: what can be had there, and the run itself."""
