"""Groups of the consumer protocol (KIP-848): the broker assigns, and moves members step by step."""
