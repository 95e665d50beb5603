"""Changes the cluster's metadata again and again, and remembers how each change fared.

It shows what a change of controllers costs those who create and alter. Works on a topic of its own,
so that no producer or consumer is touched by it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Self

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.lab.parameters import LabError
from holdfast.wire.administration import AdminError, alter_configs, create_topic
from holdfast.wire.structs import ResourceType

TOPIC = "changes"
KEY = "retention.ms"
PAUSE_S = 0.05  # metadata may be changeable again for so long before it is seen
# Longer than a broker tries to reach a controller: what ends a change is the cluster's own answer.
ANSWER_S = 40.0
UNDERWAY_MS = 50.0
CHANGES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change: when it was asked for, when it was answered (monotonic ms), and how."""

    begin_ms: float
    end_ms: float
    error: str | None


class MetadataChanger:
    """A thread of its own from `start` to `stop`; `changes` may be read at any time."""

    def __init__(self, bootstrap: str) -> None:
        self._driver = Driver(bootstrap, "changer", timeout_s=ANSWER_S)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changer", daemon=True)
        self.changes: list[Change] = []

    def start(self) -> Self:
        """Create the topic and begin. LabError: it can't be created."""
        try:
            broker = min(self._driver.nodes())
            self._driver.perform(create_topic(TOPIC, assignment={0: [broker]}))
        except (ValueError, AdminError, DriverError) as error:
            raise LabError(f"the topic {TOPIC} can't be made: {error}") from error
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after the change that is being made."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(ANSWER_S + 1)
        self._driver.close()

    def first_after(self, at_ms: float) -> Change | None:
        """Return the first change that was made after this moment, if there is one.

        An answer that comes within moments tells of what was decided before.
        """
        for change in list(self.changes):
            later = change.begin_ms >= at_ms or change.end_ms >= at_ms + UNDERWAY_MS
            if change.error is None and later:
                return change
        return None

    def made_since(self, at_ms: float) -> int:
        """How many changes were asked for since this moment, and made."""
        return sum(c.error is None and c.begin_ms >= at_ms for c in list(self.changes))

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(PAUSE_S) and number < CHANGES_MAX:
            number += 1
            begin_ms = time.monotonic() * 1000
            error = None
            try:
                configs: dict[str, str | None] = {KEY: str(1_000_000 + number)}
                self._driver.perform(alter_configs(ResourceType.TOPIC, TOPIC, configs))
            except (AdminError, DriverError) as problem:
                error = str(problem)
            self.changes.append(Change(begin_ms, time.monotonic() * 1000, error))
