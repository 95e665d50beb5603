"""Scenarios of a Spark query that copies a topic into a table. Each ends row for row."""
