"""What Spark discovers by name: `format("holdfast")` without registration.

Spark looks for top-level modules called `pyspark_*` that expose `DefaultSource`.
"""

from holdfast.pipelines.source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
