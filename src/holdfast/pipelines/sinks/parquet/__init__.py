"""Folders of Parquet files that have each batch once, and that any reader can trust."""
