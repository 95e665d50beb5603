"""What `holdfast reassign-partitions` does: it proposes, begins, waits, verifies and calls back.

Owns the order of it and the words, which are kafka-reassign-partitions'. Where replicas should go
is `clients.placement_plan`'s; throttles and waits are `clients.reassigning`'s.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import typer

from holdfast.cli.exit_status import EXIT_FAILED, CommandError, InterruptedCommandError
from holdfast.cli.reassignment.reassignment_files import as_json as written
from holdfast.cli.refusals import refusal_text
from holdfast.cli.shared_options import did_you_mean
from holdfast.clients import reassigning
from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.clients.placement_plan import Assignment, Planner, TopicPartition
from holdfast.clients.topic_descriptions import topic_names
from holdfast.wire.administration import AdminError, reassign, reassignments

_GOES_ON = "The move goes on; --list shows it, --cancel calls it back."


class Mover:
    """What the flags do, on one cluster. Every method may raise AdminError and DriverError."""

    def __init__(self, driver: Driver, *, as_json: bool, throttle: int | None, racks: bool) -> None:
        self._driver = driver
        self._as_json = as_json
        self._throttle = throttle
        self._racks = racks

    # -- looking -------------------------------------------------------------------------------

    def check_topics(self, topics: Sequence[str]) -> None:
        """Refuse names of topics that are not there: nothing of them moves, as if all was done."""
        known = topic_names(self._driver) if topics else {}
        for name in topics:
            if name not in known:
                advice = did_you_mean(name, known)
                raise CommandError(f"--topic {name}: there is no such topic.{advice}")

    def show_moves(self, topics: Sequence[str]) -> None:
        """Kafka's --list; topics [] meaning all of them."""
        found = sorted(self._driver.perform(reassignments()).items())
        moves = [(key, move) for key, move in found if not topics or key[0] in topics]
        if self._as_json:
            _print_json(
                [
                    {
                        "topic": topic,
                        "partition": partition,
                        "replicas": move.replicas,
                        "adding": move.adding,
                        "removing": move.removing,
                    }
                    for (topic, partition), move in moves
                ]
            )
        elif not moves:
            print("No partition reassignments found.")
        else:
            print("Current partition reassignments:")
            for (topic, partition), move in moves:
                adding = f" adding: {_ids(move.adding)}." if move.adding else ""
                removing = f" removing: {_ids(move.removing)}." if move.removing else ""
                print(f"{topic}-{partition}: replicas: {_ids(move.replicas)}.{adding}{removing}")

    def propose(self, topics: Sequence[str], brokers: Sequence[int]) -> None:
        """Kafka's --generate: the topics, spread over these brokers."""
        current = reassigning.assignment(self._driver, list(topics))
        known = self._brokers()
        missing = [broker for broker in brokers if broker not in known]
        if missing:
            raise CommandError(f"--broker-list: no broker {_ids(missing)} is alive.")
        planner = Planner(current, {broker: known[broker] for broker in brokers})
        planner.use_only_known_brokers()
        planner.spread()
        print(f"Current partition replica assignment\n{written(current)}\n")
        print(f"Proposed partition reassignment configuration\n{written(planner.planned)}")

    def plan(
        self, topics: Sequence[str], factor: int | None, removed: Sequence[int], spread: bool
    ) -> Assignment:
        """What changes for these purposes, topics [] meaning all of them."""
        assert topics or factor is None, "the command asks of which topics"
        current = reassigning.assignment(self._driver, list(topics) or None, internal=bool(removed))
        known = self._brokers()
        _check_there(removed, known, current)
        planner = Planner(
            reassigning.without_moves(self._driver, current),
            {broker: rack for broker, rack in known.items() if broker not in removed},
        )
        if removed:
            planner.leave(removed)
        if factor is not None:
            planner.set_factor(factor)
        if spread:
            planner.spread()
        return planner.changes

    def _brokers(self) -> dict[int, str | None]:
        found = reassigning.racks(self._driver)
        return found if self._racks else dict.fromkeys(found)

    # -- moving --------------------------------------------------------------------------------

    def carry_out(self, plan: Assignment, *, dry_run: bool, wait: bool, additional: bool) -> None:
        """Begin, and wait until all of it has arrived."""
        if dry_run:
            print(written(plan))
            return
        throttled = self._begin(plan, additional=additional)
        self._say(f"Begun: {_names(plan)}.")
        self._follow(plan, throttled, wait=wait)

    def under_way(self, topics: Sequence[str]) -> Assignment:
        """Where what is being moved will be; topics [] meaning all of them."""
        moves = sorted(self._driver.perform(reassignments()).items())
        return {key: move.target for key, move in moves if not topics or key[0] in topics}

    def go_on(self, moving: Assignment, *, wait: bool) -> None:
        """What is asked for has been begun before: set the throttle anew, and wait for that."""
        if not moving:
            self._say("Nothing has to move.")
            if self._as_json:
                _print_json([])
            return
        throttled: list[int] = []
        if self._throttle is not None:
            held = reassigning.assignment(self._driver, internal=True)
            throttled = sorted({node for key in moving for node in held[key]})
            reassigning.set_rates(self._driver, throttled, self._throttle)
            self._say(f"The inter-broker throttle limit was set to {self._throttle} B/s")
        self._say(f"Under way already: {_names(moving)}.")
        self._follow(moving, throttled, wait=wait)

    def _follow(self, plan: Assignment, throttled: Sequence[int], *, wait: bool) -> None:
        """Wait until all has arrived, and take the throttle off; or say how to do both."""
        note = " The throttle stays on until --verify clears it." if throttled else ""
        if not wait:
            self._say(f"`holdfast reassign-partitions --list` shows it.{note}")
            if self._as_json:
                print(written(plan))
            return
        try:
            self._wait(plan)
        except KeyboardInterrupt:
            raise InterruptedCommandError(f"{_GOES_ON}{note}") from None
        except (AdminError, DriverError) as error:
            why = refusal_text(error) if isinstance(error, AdminError) else str(error)
            raise CommandError(f"{why}. {_GOES_ON}{note}") from None
        if throttled and not self._others_move():
            reassigning.clear_throttle(self._driver, {key[0] for key in plan}, throttled)
        self._say(f"Done: {_names(plan)}.")
        if self._as_json:
            print(written(plan))

    def execute(self, target: Assignment, *, additional: bool) -> None:
        """Kafka's --execute."""
        current = reassigning.assignment(self._driver, sorted({key[0] for key in target}))
        _check_known(target, current)
        kept = {key: current[key] for key in target}
        print(f"Current partition replica assignment\n\n{written(kept)}\n")
        print("Save this to use as the --reassignment-json-file option during rollback")
        self._begin(target, additional=additional)
        print(f"Successfully started partition reassignment{_plural(target)} {_names(target)}")

    def _begin(self, target: Assignment, *, additional: bool) -> list[int]:
        """Throttle and begin; returns the brokers that are throttled."""
        current = reassigning.assignment(self._driver, sorted({key[0] for key in target}))
        _check_known(target, current)
        if not additional and self._driver.perform(reassignments()):
            raise CommandError(
                "Partitions are being moved already (--list shows them). Wait for them, or use "
                "--additional to begin this beside them."
            )
        throttled: list[int] = []
        if self._throttle is not None:
            throttled = reassigning.throttle(self._driver, current, target, self._throttle)
            self._say(f"The inter-broker throttle limit was set to {self._throttle} B/s")
        self._driver.perform(reassign(target))
        return throttled

    def _wait(self, target: Assignment) -> None:
        """Wait until every target is reached, and say how far it is."""
        for arrived in reassigning.arrivals(self._driver, target):
            self._say(f"{arrived} of {len(target)} partitions have arrived")
        left = reassigning.settled(self._driver, target)
        if left:  # nothing moves any more: somebody has called it back
            raise CommandError(
                "; ".join(f"{topic}-{number} {why}" for (topic, number), why in left.items())
            )

    # -- after ---------------------------------------------------------------------------------

    def verify(self, target: Assignment, *, keep: bool, topics: Sequence[str] | None = ()) -> None:
        """Kafka's --verify: exit status 1 while anything of it is not done.

        The throttle is taken off these topics as well; None: off all.
        """
        left = reassigning.settled(self._driver, target)
        if self._as_json:
            _print_json(
                [
                    {"topic": key[0], "partition": key[1], "state": left.get(key, "completed")}
                    for key in sorted(target)
                ]
            )
        else:
            print("Status of partition reassignment:")
            for key in sorted(target):
                print(
                    f"Reassignment of partition {key[0]}-{key[1]} {left.get(key, 'is completed')}."
                )
        if left:
            raise typer.Exit(EXIT_FAILED)
        if not keep and not self._others_move():
            self._clear(target, topics)

    def cancel(self, target: Assignment, *, keep: bool, topics: Sequence[str] | None = ()) -> None:
        """Kafka's --cancel: those of the file that are being moved go back; `topics` as above."""
        moves = self._driver.perform(reassignments())
        called = [key for key in sorted(target) if key in moves]
        if called:
            self._driver.perform(reassign(dict.fromkeys(called)))
            print(
                f"Successfully cancelled partition reassignment{_plural(called)}: {_names(called)}"
            )
        else:
            print("None of the specified partition moves are active.")
        if not keep:
            self._clear(target, topics)

    def _others_move(self) -> bool:
        """Say so if anything is still being moved: a broker's rate is one for all its moves."""
        moves = self._driver.perform(reassignments())
        if moves:
            self._say(f"Throttles stay on for {_names(moves)}, until --verify finds all done.")
        return bool(moves)

    def _clear(self, target: Assignment, more: Sequence[str] | None) -> None:
        brokers = sorted(reassigning.racks(self._driver))
        if more is None:
            target = reassigning.assignment(self._driver, internal=True)
        topics = sorted({*(topic for topic, _ in target), *(more or ())})
        reassigning.clear_throttle(self._driver, topics, brokers)
        self._say(f"\nClearing broker-level throttles on brokers {_ids(brokers)}")
        self._say(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")

    def _say(self, text: str) -> None:
        if not self._as_json:
            print(text, flush=True)


def _check_there(removed: Sequence[int], alive: Collection[int], current: Assignment) -> None:
    """A broker that is down may be emptied; one that nobody has heard of is a mistake."""
    holding = {node for nodes in current.values() for node in nodes}
    unknown = [broker for broker in removed if broker not in alive and broker not in holding]
    if unknown:
        raise CommandError(
            f"--remove-broker: no broker {_ids(unknown)} is alive, and none of these partitions "
            "has a replica there."
        )


def _check_known(target: Assignment, current: Assignment) -> None:
    unknown = [key for key in target if key not in current]
    if unknown:
        raise CommandError(f"There is no partition {_names(unknown)}.")


def _names(keys: Mapping[TopicPartition, object] | Sequence[TopicPartition]) -> str:
    return ",".join(f"{topic}-{partition}" for topic, partition in sorted(keys))


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _s(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"


def _plural(keys: Mapping[TopicPartition, object] | Sequence[TopicPartition]) -> str:
    return " for" if len(keys) == 1 else "s for"


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))
