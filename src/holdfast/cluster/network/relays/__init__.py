"""Relays of TCP connections: doors, and links where connections are what can be seen."""
