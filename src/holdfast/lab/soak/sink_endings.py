"""Why drivers of a query under kills have ended, and what that tells of the sink.

Owns the judgement: what was killed explains an end, and so does a machine that is too slow. Neither
is held against a sink. A driver that nobody has disturbed and that ends by itself is, when the next
ones do the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.lab.soak.stateful_campaigns import ProofError

REFUSALS_MAX = 3  # ends of drivers of which nobody was killed
FENCED = "FencedError"  # what a driver that was replaced has to end with
# What a machine that is too slow, or brokers on it, bring about: it tells nothing of a sink. Spark
# says so by its own names: that something "timed out" is what a sink says of its own locks, too.
MACHINE = re.compile(
    r"holdfast\.pipelines\.(reading|listing)\.|holdfast\.clients\.|KafkaError|KafkaException"
    r"|TimeoutException|failed to connect back|[Hh]eartbeat|OutOfMemoryError"
)


class BrokenError(Exception):
    """What was seen is no sink that keeps its promise, whatever its table has."""


class Ended(Protocol):
    """A driver that has ended: a `HeldLife`."""

    killed: bool
    disturbed: bool

    def failure(self) -> Mapping[str, Any] | None: ...

    def status(self) -> int | None: ...

    def tail(self) -> str: ...


class Endings:
    """What drivers of one query have said when they ended."""

    def __init__(self) -> None:
        self.unfinished = 0  # checkpoints that were killed while Spark made them
        self.failures: list[str] = []  # of drivers that ended of a kill of something else
        self.refusals: list[str] = []  # of those that nobody had disturbed
        self._troubles: list[str] = []  # the same, of the machine

    def learn(self, life: Ended, batches: int) -> bool:
        """See why a driver has ended. True: it can't go on before its checkpoint is removed.

        `batches`: how many of them Spark has committed. BrokenError, ProofError: there is no going
        on.
        """
        if life.killed:
            return False
        told, error = life.failure(), _words(life)
        if told is not None and told.get("unfinished"):
            if batches:
                raise BrokenError(f"Spark has committed {batches} batches, and finds none: {error}")
            self.unfinished += 1
            return True
        if life.disturbed:
            self.failures.append(error[:300])
        elif _is_machine(life):
            self._troubles.append(error[:1_000])
        else:
            self.refusals.append(error[:1_000])
        if len(self.refusals) >= REFUSALS_MAX:
            raise BrokenError(f"No driver goes on any more: {self.refusals[-1]}")
        if len(self._troubles) >= REFUSALS_MAX:
            raise ProofError(f"Drivers end by themselves: {self._troubles}")
        return False


def refuse_unless_fenced(life: Ended) -> None:
    """BrokenError: a driver that was replaced has ended quietly, or has said something else.

    ProofError: it died of the machine before it could be refused.
    """
    error = _words(life)
    if FENCED in error:
        return
    if _is_machine(life):
        raise ProofError(f"A driver that was replaced did not come to be refused: {error[:1_000]}")
    raise BrokenError(f"A driver that was replaced ended otherwise: {error[:1_000]}")


def _words(life: Ended) -> str:
    told = life.failure()
    return f"It said nothing: {life.tail()}" if told is None else str(told["error"])


def _is_machine(life: Ended) -> bool:
    """Whether the machine has ended it: by its words, or by a death that left it none.

    Who ends well and says nothing has stopped by itself.
    """
    told = life.failure()
    return bool(life.status()) if told is None else MACHINE.search(str(told["error"])) is not None
