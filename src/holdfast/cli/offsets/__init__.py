"""holdfast get-offsets and inspect: what partitions hold, and how far their replicas are."""
