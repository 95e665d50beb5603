"""A driver's life in the session that tests share: what a real driver runs, without its own JVM.

It begins as any driver does, from the checkpoint and the tables alone. Who is to be killed needs a
process and a JVM of its own; who reads what the dead have left, does not.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from holdfast.lab.soak.stateful_campaigns import Life
from holdfast.pipelines import driver, lines, stateful

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LinesHere:
    """The query of `holdfast.pipelines.lines`, as its driver makes it of these options."""

    def __init__(self, spark: SparkSession, words: Sequence[str]) -> None:
        parser = argparse.ArgumentParser()
        driver.add_options(parser)
        options = parser.parse_args(words)
        self._checkpoint = options.checkpoint
        self._sink = driver._sink(options, lines.Lines(), lambda _batch, _rows: None)
        self.query = driver._start(spark, options, lines.frame, self._sink)

    def follow(self) -> int:
        """Wait until the query ends; return what its driver would end with."""
        return driver._follow(self.query, self._sink, self._checkpoint, [])

    def end(self) -> None:
        self.query.stop()
        self._sink.close()


class StatefulHere(Life):
    """A whole life of `holdfast.pipelines.stateful`, from its command line to its status."""

    def __init__(self, spark: SparkSession, folder: Path, words: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        self._said, self._log = folder / "said", folder / "log"
        with ExitStack() as stack:
            stack.enter_context(redirect_stdout(stack.enter_context(self._said.open("w"))))
            stack.enter_context(redirect_stderr(stack.enter_context(self._log.open("w"))))
            stack.enter_context(patch.object(stateful, "local_session", lambda *_, **__: spark))
            stack.enter_context(_signals_kept())
            self._status = stateful.main(words)

    def ended(self) -> bool:
        return True

    def kill(self) -> None:
        """Nothing: it has ended."""

    def wait(self) -> int:
        return self._status


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Take back what a driver does with the signals of its process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
