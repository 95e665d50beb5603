"""What the active controller decides: each function turns a request into records."""
