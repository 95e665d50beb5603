"""Whole histories of a run with a group, made up: its log, its members, and the last read."""

from __future__ import annotations

from pathlib import Path

from tests.judge.group_stories import GroupStory

from holdfast.judge.checker import Evidence, judge
from holdfast.judge.groups.history import encode_any
from holdfast.judge.history import Delivered, ReadEnd, Send

RECORDS = 6


class GroupRun(GroupStory):
    """RECORDS records of one partition, acknowledged; then what members do; then `end`."""

    def __init__(self) -> None:
        super().__init__(records=0)
        for offset in range(RECORDS):
            self.add(Send, "p", topic="foo", partition=0, id=f"p:{offset}", digest="d", size=10)
            self.ack(offset)

    def end(self) -> GroupRun:
        """Leave the group in peace, and read the log to its end."""
        self.calm()
        self.uncalm()
        for offset in range(RECORDS):
            self.add(Delivered, "final", offset=offset, id=f"p:{offset}", digest="d")
        self.add(ReadEnd, "final", begin=0, end=RECORDS)
        return self

    def evidence(self) -> Evidence:
        return judge(self.events)

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        text = "".join(encode_any(event) for event in self.events)
        (directory / "all.jsonl").write_text(text)


def kept() -> GroupRun:
    """One member does all; it is killed, and the next one repeats what was not committed."""
    run = GroupRun()
    run.join("a").own("a").do("a", 0, 1, 2, 3).commit("a", 2).fault("a", "KILL")
    run.join("b", 2).own("b", 2, 2).do("b", 2, 3, 4, 5).commit("b", 6)
    return run.end()


def skipping() -> GroupRun:
    """It commits before it processes, and is killed in between."""
    run = GroupRun()
    run.join("a").own("a").do("a", 0).commit("a", 4).fault("a", "KILL")
    run.join("b", 2).own("b", 2, 4).do("b", 4, 5).commit("b", 6)
    return run.end()


def worse() -> GroupRun:
    """And two members own a partition at once."""
    run = GroupRun()
    run.join("a").own("a").do("a", 0).commit("a", 4)
    run.join("b", 2).own("b", 2, 4).do("b", 4, 5).commit("b", 6)
    return run.end()


def never_calm() -> GroupRun:
    """Nobody left it in peace: whether it would have been stuck is not known."""
    run = kept()
    run.events = [event for event in run.events if not event.KIND.startswith("group_calm")]
    return run
