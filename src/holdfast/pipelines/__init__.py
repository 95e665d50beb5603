"""Spark reads a Kafka log into tables, exactly once.

`session` starts Spark, `source` is `format("holdfast")`, `write` is the one call from a stream to a
table, `sinks` has what each kind of table needs. `follow` waits for a query of another sink, and
tells consumer groups how far it is. `sink` commits rows and offsets in one transaction
for what writes rows itself, as the demo's two recipes do, `ledger` and `lines`. Nothing here
imports a broker's code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.pipelines.progress.follow import follow
    from holdfast.pipelines.sinks.writing import write

__all__ = ["follow", "write"]

_WHERE = {
    "follow": "holdfast.pipelines.progress.follow",
    "write": "holdfast.pipelines.sinks.writing",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: workers import this package, and need no database."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_WHERE[name]), name)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library == __name__.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{__name__}.{name} needs {library}, which is not installed: pip install "
            "'holdfast[spark]' brings it, or 'holdfast[executor]' where Spark is there already",
            name=error.name,
        ) from error
