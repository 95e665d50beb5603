"""A writer of Delta batches without Spark, and deaths of it at any step: see parquet_writer.

Of what deltalake does on the disk Python sees nothing, so a step is before and after each call of
it. Within a call its commit is one link of a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import types as spark
from tests.pipelines.parquet_writer import CHANGE, LOOK, SCHEMA, batch, main, write

from holdfast.pipelines.sinks.delta_store import DeltaStore
from holdfast.pipelines.sinks.target import Target


def opened(root: Path, schema: spark.StructType = SCHEMA, **target: Any) -> DeltaStore:
    store = DeltaStore(f"delta://{root}", "a query", Target(**{"table": "kept", **target}))
    store.open(schema, "local[2]")
    return store


def begun(root: Path, **more: Any) -> DeltaStore:
    """Return a store that has had batch 0."""
    store = opened(root, **more)
    write(store, batch(0))
    return store


def stepped(call: Callable[..., Any], before: str | None, after: str) -> Callable[..., Any]:
    """Make a step of what comes after a call, and of what comes before it."""

    @wraps(call)
    def steps(*arguments: Any, **named: Any) -> Any:
        if before is not None:
            sys.audit(before)
        result = call(*arguments, **named)
        sys.audit(after)
        return result

    return steps


def step_into_calls() -> None:
    """A table that was read may be old at once; a commit has a before and an after."""
    patched: Any = DeltaTable
    patched.__init__ = stepped(DeltaTable.__init__, None, LOOK)
    patched.update_incremental = stepped(DeltaTable.update_incremental, None, LOOK)
    patched.create_write_transaction = stepped(DeltaTable.create_write_transaction, CHANGE, LOOK)
    patched.create = stepped(DeltaTable.create, CHANGE, LOOK)


if __name__ == "__main__":
    step_into_calls()
    main(sys.argv[1], Path(sys.argv[2]), opened)
