"""Spark reads a Kafka log into tables, exactly once.

`session` starts Spark, `source` is `format("holdfast")`, `write` is the one call from a stream to a
table, `sinks` has what each kind of table needs. `sink` commits rows and offsets in one transaction
for what writes rows itself, as the demo's two recipes do, `ledger` and `lines`. Nothing here
imports a broker's code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.pipelines.sinks.writing import write

__all__ = ["write"]


def __getattr__(name: str) -> Any:
    """Import `write` when it is first used: workers import this package, and need no database."""
    if name != "write":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.pipelines.sinks.writing import write  # noqa: PLC0415

    return write
