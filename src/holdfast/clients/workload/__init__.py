"""Producers and consumers of a run, each a process that writes down what it saw."""
