"""Spark queries in a run: their drivers, their tables, and what plain Python makes of the log."""
