"""One owner at a time: who may be given a partition, and who may still process what was its own."""

from __future__ import annotations

from holdfast.judge.groups.history import Assigned, Processed, began_ms
from holdfast.judge.groups.members import Group, Process
from holdfast.judge.groups.tenures import Tenure
from holdfast.judge.groups.verdict import GroupAnomaly, GroupFindings
from holdfast.judge.history import Event

NO_TROUBLE = Process()


class OwnerRules:
    def __init__(
        self, findings: GroupFindings, group: Group, processes: dict[str, Process]
    ) -> None:
        self._findings = findings
        self._group = group
        self._processes = processes

    def hand_over(self, before: Tenure, event: Assigned) -> None:
        """Hold it against the owner so far that another member is told to own the partition."""
        old = before.assigned
        if event.instance is not None and event.instance == old.instance:
            return  # a static member's next life, which fences the one before
        if event.epoch == old.epoch:
            text = f"{old.member} and {event.member} were given it in one epoch, {event.epoch}"
            self._find(text, old, event)
            return
        if before.ended is not None:
            return
        sign_ms = self._group.told_ms[old.member]
        process = self._processes.get(old.process, NO_TROUBLE)
        is_expected = self._group.expected is not None
        is_silent = is_expected and event.at_ms - sign_ms >= self._group.silence_ms
        if process.trouble_ms >= sign_ms or is_silent:
            return
        text = f"{event.member} was given it, {old.member} had it and was in no trouble"
        self._find(text, old, before.committed, event)

    def may_process(self, event: Processed, tenure: Tenure | None, current: Tenure | None) -> bool:
        """Hold a record against who processed it; False: it was not its to process."""
        begin_ms = began_ms(event)
        if tenure is None or tenure.started is None:
            text = f"{event.member} processed offset {event.offset}, and had not begun to read it"
            self._find(text, None if tenure is None else tenure.assigned, event)
            return False
        if tenure.ended is not None and begin_ms > tenure.ended.at_ms:
            text = f"{event.member} processed offset {event.offset}, and had given it up"
            self._find(text, tenure.ended, event)
            return False
        if tenure is current:
            return True
        assert tenure.successor is not None, "who is not the owner has lost it to another one"
        if tenure.heard is not None and begin_ms > tenure.heard.at_ms:
            text = f"{event.member} processed offset {event.offset}, and knew that it was out"
            self._find(text, tenure.heard, tenure.successor, event)
            return False
        process = self._processes.get(tenure.assigned.process, NO_TROUBLE)
        until_ms = max(tenure.successor.at_ms, process.trouble_ms) + self._group.silence_ms
        if begin_ms > until_ms:
            text = f"{event.member} processed offset {event.offset}, long after it was another's"
            self._find(text, tenure.successor, process.last, event)
            return False
        return True

    def _find(self, text: str, *events: Event | None) -> None:
        self._findings.find(GroupAnomaly.TWO_OWNERS, text, *events)
