"""Looks at what a group has committed, again and again, and writes it into the history.

It is no member and owns nothing: what it is told must be what an owner, or an operator, committed.
What a broker answers while another one is the coordinator is passed over: OffsetFetch is no read of
a majority, and who stood still answers from memory.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.clients.group_coordinators import DOUBT_S, Coordinators
from holdfast.clients.group_descriptions import committed
from holdfast.clients.workload.group_diary import now_ms
from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.groups.history import CommittedSeen
from holdfast.lab.isr_observer import Watcher
from holdfast.wire.administration import AdminError

POLL_S = 0.5
ASK_S = 2.0


class GroupObserver(Watcher):
    """What a group has committed."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, partitions: range, history: Path
    ) -> None:
        super().__init__(f"observer of {group}")
        self._driver = Driver(bootstrap, f"{group}-observer", timeout_s=ASK_S, connect_s=DOUBT_S)
        self._coordinators = Coordinators(self._driver, patience_s=0.0)
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._recorder = Recorder(history / f"{group}-observer.jsonl", f"{group}-observer")
        self.looked_ms = -1.0  # when the last look began that was answered

    def _close(self) -> None:
        self._driver.close()
        self._recorder.close()

    def _watch(self) -> None:
        while not self._stopping.wait(POLL_S):
            self._look()

    def _look(self) -> None:
        begin_ms = now_ms()
        try:
            answer = committed(self._coordinators, [self._group])[self._group]
            if isinstance(answer, AdminError) or self._coordinators.is_doubted(self._group):
                return
        except DriverError:
            return
        for partition in self._partitions:
            found = answer.get((self._topic, partition))
            self._recorder.record(
                CommittedSeen,
                group=self._group,
                topic=self._topic,
                partition=partition,
                offset=None if found is None else found.offset,
                begin_ms=begin_ms,
            )
        self._recorder.flush()
        self.looked_ms = begin_ms
