"""What talks to a cluster as any client does: a blocking driver, and verifiable clients."""
