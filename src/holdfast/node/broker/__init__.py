"""A broker: its replicas, what it fetches, and its standing with the controller."""
