"""A driver process that a test holds still: in the middle of a batch, or after a commit.

`python held_driver.py DIRECTORY {rows|commit} DRIVER-OPTIONS...`. With `rows` a batch that has
read its rows waits for the file DIRECTORY/go before it hands them on; with `commit` every batch
waits after the table's commit, before Spark knows. DIRECTORY/held is there while one waits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.cluster.processes import wait_until
from holdfast.pipelines import driver, lines

WAIT_S_MAX = 240


def wait_for(directory: str, *, once: bool) -> None:
    """Wait for the go, which holds for one wait only, or for all that are still to come."""
    Path(directory, "held").touch()
    wait_until(Path(directory, "go").exists, timeout_s=WAIT_S_MAX, what="the go")
    Path(directory, "held").unlink(missing_ok=True)
    if once:
        Path(directory, "go").unlink()


def main() -> int:
    directory, where, *rest = sys.argv[1:]
    parser = argparse.ArgumentParser()
    driver.add_options(parser)

    def frame(records: Any) -> Any:
        made = lines.frame(records)
        if where != "rows":
            return made

        def hold(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                wait_for(directory, once=False)
                yield batch

        return made.mapInArrow(hold, made.schema)

    def committed(batch: int, rows: int) -> None:
        driver.say_committed(batch, rows)
        if where == "commit":
            wait_for(directory, once=True)

    return driver.run(parser.parse_args(rest), lines.Lines(), frame, on_commit=committed)


if __name__ == "__main__":
    sys.exit(main())
