"""What scenarios do with a run: steps that several share, and how a run ends."""
