"""What min.insync.replicas is worth: as many failures at once, less one, and nothing is lost.

Every number of replicas and every min ISR is a partition of its own, and all of them are hurt
together. Some brokers leave cleanly, so that each partition's ISR is exactly its min ISR: the worst
case that acknowledges. Then so many of the others are killed at one instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.cluster.probe import PartitionState, ask
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.report import Check, Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.closing import end_of
from holdfast.lab.steps.dead_disks import lose_replica
from holdfast.lab.steps.usual import must_acknowledge

FACTORS = (3, 4, 5)
FAILURES = (1, 2, 3, 4, 5)
LEAVERS = (0, 1, 2, 3)  # they leave cleanly before the events at stake are sent
STAYERS = (4, 5, 6, 7, 8)  # the first of them are killed
BROKERS = len(LEAVERS) + len(STAYERS)
BACK_S = 60.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One partition: so many replicas, this min ISR, and whether its files are lost in a kill."""

    factor: int
    min_isr: int
    disks_lost: bool
    partition: int

    @property
    def topic(self) -> str:
        return f"rf-{self.factor}-min-isr-{self.min_isr}"

    @property
    def replicas(self) -> tuple[int, ...]:
        return (*STAYERS[: self.min_isr], *LEAVERS[: self.factor - self.min_isr])

    @property
    def in_sync(self) -> set[int]:
        """The ISR while the leavers are away."""
        return set(self.replicas) & set(STAYERS)


def cells() -> list[Cell]:
    """Every number of replicas with every min ISR, with disks kept and with disks lost."""
    return [
        Cell(factor, min_isr, bool(partition), partition)
        for factor in FACTORS
        for min_isr in range(1, factor + 1)
        for partition in (0, 1)
    ]


def holds(cell: Cell, failures: int) -> bool:
    """The law: nothing committed is lost with fewer failures than min ISR, or with disks kept."""
    return failures < cell.min_isr or not cell.disks_lost


@dataclass(slots=True)
class Ledger:
    """What was acknowledged and what was found gone, of one cell at one number of failures."""

    cell: Cell
    failures: int
    at_stake: int
    found: int

    @property
    def lost(self) -> int:
        return self.at_stake - self.found

    @property
    def as_foretold(self) -> bool:
        return self.lost == (0 if holds(self.cell, self.failures) else self.at_stake)


class Law:
    """The whole experiment on one cluster: all cells, one number of failures after the other."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.cells = cells()
        self.ledgers: list[Ledger] = []
        self._clients: dict[str, RawProducer] = {}

    def make(self) -> None:
        """Create the topics, each with its min ISR, and wait until all is in sync."""
        run = self._run
        for topic in self.topics:
            own = [cell for cell in self.cells if cell.topic == topic]
            configs = {"min.insync.replicas": str(own[0].min_isr)}
            assignment = {cell.partition: cell.replicas for cell in own}
            if topic == run.topic:
                run.make_topic(assignment, configs)
            else:
                run.create_topic(topic, len(assignment), configs, assignment=assignment)
                run.placement[topic] = assignment
            self._clients[topic] = run.raw_client(f"producer-{topic}", acks="all", topic=topic)
        run.note(f"{len(self.topics)} topics, of every RF and every min ISR")
        self._wait_in_sync("all to be in sync", whole=True)

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(cell.topic for cell in self.cells))

    def fail(self, failures: int, watched: list[Cell]) -> None:
        """Kill so many at once while no ISR is larger than it must be; heal; write down."""
        run = self._run
        self._send(watched)
        run.fault("TERM", *LEAVERS)
        self._wait_in_sync("every ISR to be as small as may be", whole=False)
        self._send(watched)
        killed = STAYERS[:failures]
        before = {cell: self._end(cell) for cell in watched}
        run.fault("KILL", *killed)
        for node in killed:
            lost = [cell for cell in watched if cell.disks_lost and node in cell.in_sync]
            for cell in lost:
                lose_replica(run, node, cell.partition, cell.topic)
            if lost:
                run.damage(node, f"its copies of {len(lost)} partitions are gone")
        run.start_node(*killed, *LEAVERS)
        self._wait_in_sync("all to be in sync again", whole=True)
        self.ledgers += [Ledger(c, failures, before[c], self._end(c)) for c in watched]

    def _send(self, watched: Iterable[Cell]) -> None:
        count = self._run.parameters.count
        for cell in watched:
            must_acknowledge(self._run, self._clients[cell.topic], cell.partition, count)

    def _wait_in_sync(self, what: str, *, whole: bool) -> None:
        """Wait until each ISR is all replicas, or only those that stay.

        LabError, behind a failed check: it never is.
        """

        def reached() -> bool:
            states = self._states()
            for cell in self.cells:
                state = states.get(cell.topic, {}).get(cell.partition)
                isr = set(cell.replicas) if whole else cell.in_sync
                if state is None or state.leader < 0 or set(state.isr) != isr:
                    return False
            return True

        bound_s = BACK_S if whole else SETTLE_S
        if not self._run.soon(reached, bound_s):
            seen = f"not so within {bound_s:.0f} s"
            self._run.check(what, "come to be", seen, kept=False, late=True)
            raise LabError(f"{what}: {seen}")

    def _states(self) -> dict[str, dict[int, PartitionState]]:
        """All topics as a broker shows them that serves."""
        for node in self._run.cluster.record.brokers:
            answer = ask(node.watch_address, self.topics)
            if answer is not None and node.id in answer.brokers:
                return answer.topics
        return {}

    def _end(self, cell: Cell) -> int:
        return end_of(self._run, min(cell.in_sync), cell.partition, cell.topic)


def steps(run: Run) -> None:
    """Fewer failures than min ISR with disks lost, as many with disks kept: nothing is lost."""
    _experiment(run, lambda cell, failures: failures <= cell.min_isr and holds(cell, failures))


def beyond(run: Run) -> None:
    """As many failures as min ISR, with disks lost: all copies of what was acknowledged go."""
    _experiment(run, lambda cell, failures: cell.disks_lost and cell.min_isr == failures)


def _experiment(run: Run, watched: Callable[[Cell, int], bool]) -> None:
    """Fail 1 to 5 at once, each time with these cells at stake, and reckon what came of it."""
    law = Law(run)
    run.topic = law.topics[0]
    law.make()
    for failures in FAILURES:
        law.fail(failures, [cell for cell in law.cells if watched(cell, failures)])
    for failures in FAILURES:
        run.record_check(check_of([each for each in law.ledgers if each.failures == failures]))
    run.tables.append(law_table(law.ledgers))
    run.lost_expected = sum(each.lost for each in law.ledgers)


def check_of(ledgers: Sequence[Ledger]) -> Check:
    """One check of all cells at one number of failures: the table has the single ones."""
    wrong = [each for each in ledgers if not each.as_foretold]
    shown = [
        f"RF {each.cell.factor}, min ISR {each.cell.min_isr}, disks "
        f"{'lost' if each.cell.disks_lost else 'kept'}: {each.lost} of {each.at_stake} lost"
        for each in wrong
    ]
    return Check(
        name=f"{ledgers[0].failures} of the in-sync replicas killed at once",
        expected=f"{len(ledgers)} partitions as the law says",
        seen="; ".join(shown) or "all as it says",
        kept=not wrong,
    )


def law_table(ledgers: Iterable[Ledger]) -> Table:
    """Expectation against observation: a row a min ISR and number of failures, a column an RF."""
    rows: dict[tuple[int, int, bool], dict[int, Ledger]] = {}
    for each in ledgers:
        key = (each.cell.min_isr, each.failures, each.cell.disks_lost)
        rows.setdefault(key, {})[each.cell.factor] = each
    shown = []
    for (min_isr, failures, disks_lost), by_factor in sorted(rows.items()):
        first = next(iter(by_factor.values()))
        cells_ = [
            f"{by_factor[f].lost} of {by_factor[f].at_stake} lost" if f in by_factor else "-"
            for f in FACTORS
        ]
        expected = "nothing lost" if holds(first.cell, failures) else "all lost"
        disks = "lost" if disks_lost else "kept"
        shown.append([str(min_isr), str(failures), disks, expected, *cells_])
    return Table(
        title="The law of min.insync.replicas: expected and seen",
        header=[
            "min ISR",
            "killed at once",
            "their disks",
            "expected",
            *(f"seen, RF {factor}" for factor in FACTORS),
        ],
        rows=shown,
        note=(
            "Each ISR is as small as still acknowledges when its members are killed. A dash: fewer "
            "replicas than min ISR. Lost is what the replicas' files lack after healing; the "
            "verdict is made of what clients read back."
        ),
    )


SCENARIO = Scenario(
    name="min-isr-law",
    summary="3 to 5 replicas, every min ISR, 1 to 5 failures at once, disks kept and disks lost.",
    text=(
        "Nine brokers, and a partition for each number of replicas and each min ISR. Four brokers "
        "leave cleanly, until every ISR is as small as still acknowledges; events are sent; then "
        "1 to 5 of the in-sync replicas are killed at one instant. With disks kept nothing is "
        "lost, even if it is all of them. With disks lost (the partition's files are deleted) "
        "nothing is lost as long as fewer fail than min ISR. In the control as many fail as min "
        "ISR, with their disks: every copy of what was acknowledged is gone, and so is the rest, "
        "because the last in-sync replica leads with an empty log. The table sets expectation "
        "against observation."
    ),
    defaults=Parameters(
        brokers=BROKERS, replication_factor=5, min_isr=5, partitions=1, retries=0, count=5
    ),
    parts=(
        Part(name="main", title="Where nothing may be lost", steps=steps),
        Control(
            title="Control: as many failures as min ISR, disks lost",
            steps=beyond,
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal", "elr"}
    ),
)
