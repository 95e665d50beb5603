"""Compaction of one replica: of each key the last record stays. See docs/design/compaction.md."""
