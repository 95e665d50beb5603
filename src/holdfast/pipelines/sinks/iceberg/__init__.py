"""Iceberg tables that have each batch once, through `pyiceberg` and a catalog in SQL."""
