"""A run on a cluster that is not the lab's own.

Owns what it makes there, a topic and groups under names that nobody else has, and that nothing is
left of it: what was done to brokers is undone, topic and groups are removed, however the run ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from holdfast.clients.administration import perform_patiently
from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.clients.group_changes import delete_groups
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.workload.recorder import EventT
from holdfast.cluster.any_cluster import Cluster
from holdfast.cluster.elsewhere.elsewhere_cluster import ElsewhereCluster, Found
from holdfast.cluster.elsewhere.nodes_file import NodesFile
from holdfast.cluster.ending import end_all
from holdfast.cluster.layout import ClusterError, WaitError
from holdfast.cluster.processes import wait_until
from holdfast.judge.groups.history import GroupExpected
from holdfast.judge.history import Note
from holdfast.judge.timeline import UP_ACTIONS
from holdfast.lab.elsewhere.ends_told import settled_ends_told
from holdfast.lab.elsewhere.reach import Reach
from holdfast.lab.evidence import history_files
from holdfast.lab.guard import MARK
from holdfast.lab.outcome import nobody_can_say
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.steps.starvation import Mark
from holdfast.lab.workload_processes import HistoryTail
from holdfast.wire import administration as admin
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode

PREFIX: Final = "holdfast-prove"
HELD: Final = f"{PREFIX}-held"  # the one topic that only one lab at a time can make in a cluster
ASK_S: Final = 10.0
GROUP_MARGIN_S: Final = 15.0  # beyond a session, for members that were killed to be forgotten
UNKNOWN_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
# What a cluster of one's own shows, and one elsewhere does not.
NOT_SEEN: Final = (
    ["its replicas' files", "copies were not compared byte by byte: that they diverge is not seen"],
    ["its brokers' processes", "whether one ended by itself is not seen, unless it was missed"],
    ["its brokers' logs", "why one did what it did stands there, and nowhere here"],
    ["its controllers", "none was looked at; a broker that is one as well was hurt as both"],
)


def how_to_remove(servers: str, topics: Iterable[str]) -> str:
    """Say what the user of a lab that died types, once nobody breaks the cluster any more."""
    commands = "; ".join(
        f"holdfast topics --delete --topic {topic} --bootstrap-server {servers}" for topic in topics
    )
    return f"If none goes on any more: see that every broker serves, and type {commands}"


@contextmanager
def held(found: Found, copies: int, say: Callable[[str], None]) -> Iterator[None]:
    """Keep other labs from breaking a cluster, over all parts of a proof. LabError: one does it.

    Its topic is made at once by its controller, and for one lab alone; who only looks which topics
    there are may look in the same moment as another. What is in doubt is left there, and told.
    """
    make = admin.create_topic(HELD, partitions=1, replication_factor=copies)
    with Driver(found.servers, "lab", timeout_s=ASK_S) as driver:
        try:
            perform_patiently(driver, make)
        except (AdminError, DriverError) as error:
            why = f"the cluster at {found.servers} can't be held for this lab alone: {error}."
            if isinstance(error, AdminError) and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise LabError(why) from error
            words = "Another run may break it just now, or one was killed, and has left"
            way = how_to_remove(found.servers, [HELD])
            raise LabError(f"{why} {words} the topic {HELD}. {way}.") from error
    try:
        yield
    finally:
        with Driver(found.servers, "lab", timeout_s=ASK_S) as driver:  # others may serve by now
            try:
                perform_patiently(driver, admin.delete_topic(HELD))
            except (AdminError, DriverError) as error:
                way = how_to_remove(found.servers, [HELD])
                say(f"NOT UNDONE: the topic {HELD} may still be there: {error}. {way}.")


class Theirs(ElsewhereCluster):
    """Brokers of a run. That their owner's command fails says nothing of what they keep."""

    def wait_signalled(self, node_id: int, signal: str, *, timeout_s: float | None = None) -> None:
        """As the cluster does. LabError, where a node of the lab's own would have to be broken."""
        try:
            super().wait_signalled(node_id, signal, timeout_s=timeout_s)
        except ClusterError as error:
            raise LabError(str(error)) from error


class ElsewhereRun(Run):
    """A run on brokers that were there before. What they have of others' is left alone."""

    def __init__(
        self,
        found: Found,
        file: NodesFile | None,
        parameters: Parameters,
        directory: Path,
        say: Callable[[str], None],
    ) -> None:
        """Without a `file` nothing can be done to the brokers."""
        self._found, self._file = found, file
        self._topics: list[str] = []  # that were made, or may have been
        self._groups: dict[str, None] = {}
        super().__init__(parameters, directory, say)
        self.topic = f"{PREFIX}-{uuid.uuid4().hex[:12]}"
        self.group_prefix = f"{self.topic}-"
        self.ends_told = self._ends_told
        if file is not None:
            self._start_s = file.start_timeout_s
        self.tables.append(not_seen(file))
        self._reach = Reach(self._elsewhere.answers, self.begin_s)
        self.relied_on.append(self._reach)

    def __enter__(self) -> Self:
        super().__enter__()
        self._reach.start()
        return self

    def __exit__(self, kind: object, reason: BaseException | None, trace: object) -> None:
        try:
            self._reach.stop()
        finally:
            self.journal.unreached = self._reach.text
            super().__exit__(kind, reason, trace)

    def make_cluster(self, directory: Path) -> Cluster:
        # What commands start, brokers above all, lives on when the run has ended: it bears no mark.
        self._elsewhere = Theirs(
            self._found.record(self.parameters.node_ids[: self.parameters.brokers]),
            self._file,
            directory.with_name("commands"),
            {MARK: ""},
        )
        return self._elsewhere

    def create_topic(
        self, topic: str, count: int, configs: Mapping[str, str] | None, **placed: Any
    ) -> dict[str, str]:
        self._topics.append(topic)
        return super().create_topic(topic, count, configs, **placed)

    def fault(self, action: str, *nodes: int, wait: bool = True) -> float:
        """As in every run; the first broker is hurt once all that others have there is whole.

        ClusterError: it does not come to be.
        """
        if action not in UP_ACTIONS and not self._elsewhere.is_hurt:
            self._elsewhere.wait_whole()
        return super().fault(action, *nodes, wait=wait)

    def check(
        self,
        name: str,
        expected: str,
        seen: str,
        *,
        kept: bool,
        late: bool | Mark = False,
        given: bool = True,
    ) -> bool:
        """As in every run. LabError: it came too late, and the lab did not reach the cluster."""
        if kept and late is True:
            self._reach.overcome()
        elif not kept and late is not False and (when := self._reach.excuse) is not None:
            self.note(f"not judged: {name}: expected {expected}; seen {seen}")
            raise LabError(nobody_can_say(when, name))
        return super().check(name, expected, seen, kept=kept, late=late, given=given)

    def not_serving(self, node: int, seen: str) -> None:
        """Nothing: that may be the doing of its owner's command, as nobody can tell here."""

    def record(self, kind: type[EventT], **values: Any) -> EventT:
        if kind is GroupExpected:  # whoever makes a group says so
            self._groups[values["group"]] = None
        return super().record(kind, **values)

    def _ends_told(self, topic: str) -> dict[int, int]:
        tails = [HistoryTail(path).poll().ends for path in history_files(self.history)]
        acknowledged = {p: max(ends.get(p, 0) for ends in tails) for each in tails for p in each}
        return settled_ends_told(self, topic, acknowledged if topic == self.topic else {})

    def _end_cluster(self) -> None:
        """Undo what was done, and remove what was made. What can't be is listed."""
        try:
            self._undo()
        except BaseException as reason:  # Ctrl-C, in the middle of it
            end_all([self._undo], reason)
            raise

    def _undo(self) -> None:
        self.left = self._elsewhere.restore(self._tell)
        with suppress(DriverError):
            self.driver.metadata([])  # whom it knows may have gone
        self.left += [*self._topics_left(), *self._groups_left()]
        for each in self.left:
            self._tell(f"NOT UNDONE: {each}")

    def _topics_left(self) -> Iterator[str]:
        """Remove the topics; yield which can't be, and why."""
        for topic in list(self._topics):
            try:
                perform_patiently(self.driver, admin.delete_topic(topic))
            except (AdminError, DriverError) as error:
                if not (isinstance(error, AdminError) and error.code == UNKNOWN_TOPIC):
                    yield f"topic {topic} is still there: {error}"
                    continue
            self._topics.remove(topic)

    def _groups_left(self) -> Iterator[str]:
        """Remove the groups; yield which can't be. Killed members are in them for a session."""
        if not self._groups:
            return
        bound_s = self.parameters.group_session_ms / 1000 + GROUP_MARGIN_S

        def gone() -> bool:
            answers = delete_groups(Coordinators(self.driver, patience_s=0.0), [*self._groups])
            for name, answer in answers.items():
                if answer is None or answer.code == ErrorCode.GROUP_ID_NOT_FOUND:
                    del self._groups[name]
            return not self._groups

        try:
            wait_until(gone, timeout_s=bound_s, what="groups to be removed", poll_s=0.5)
        except (WaitError, DriverError) as error:
            yield f"groups {', '.join(self._groups)} are still there: {error}"

    def _tell(self, text: str) -> None:
        """Note a line, and say it, as far as that goes: what was done is undone all the same."""
        with suppress(OSError):
            self.record(Note, text=text)
        with suppress(OSError):
            self.say(text)


def not_seen(file: NodesFile | None) -> Table:
    """Return what the report says of a cluster whose machines the lab has no way into."""
    hurt = (
        "Nothing was done to it."
        if file is None
        else "What was done to it was done by its owner's commands: a fault stands where its "
        "command began, and counts once the broker has answered no more."
    )
    return Table(
        title="What the lab does not see of this cluster",
        header=["of", "so"],
        rows=NOT_SEEN,
        note=hurt,
    )
