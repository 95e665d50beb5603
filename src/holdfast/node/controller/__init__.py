"""The controller at work, and how a new one is formatted."""
