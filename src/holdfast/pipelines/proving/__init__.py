"""Drivers of their own for whoever proves what a pipeline keeps, and sinks that keep nothing."""
