"""Long campaigns of runs, in the background."""
