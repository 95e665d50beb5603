"""The metadata log on a controller's disk: its log, its snapshots, their format."""
