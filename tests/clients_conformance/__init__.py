"""A package for pytest: what its fixtures of this scope have started ends when its tests have."""
