"""What every action on groups shares: who is asked, what can't be done and why, how it ends.

A refusal of one group doesn't keep the others from being served: it is a line on standard error,
and the exit status of the command.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import typer

from holdfast.cli.exit_status import EXIT_FAILED
from holdfast.cli.refusals import outcome
from holdfast.cli.shared_options import did_you_mean
from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_coordinators import Answers, Coordinators
from holdfast.clients.group_descriptions import DEAD, EMPTY, Description, described, listed
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode

MEMBERS_NAMED: Final = 10
NOT_THERE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND})
_SENTENCES: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator still loads; try again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker coordinates it now; try again",
    ErrorCode.NOT_COORDINATOR: "its coordinator has moved; try again",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "it has members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group reads this topic",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has got members meanwhile",
    ErrorCode.STALE_MEMBER_EPOCH: "the group has got members meanwhile",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "access to the group is not granted",
}


@dataclass(slots=True)
class GroupTool:
    """One run of the command."""

    driver: Driver
    coordinators: Coordinators
    as_json: bool
    patience_s: float
    failed: bool = False
    _known: list[str] | None = field(default=None, init=False)

    def all_groups(self) -> list[str]:
        """Return the names of all groups, sorted; asked for once."""
        if self._known is None:
            self._known = [each.group for each in listed(self.driver, patience_s=self.patience_s)]
        return self._known

    def described(self, groups: Sequence[str]) -> Answers[Description]:
        """Describe groups, in the order of their names."""
        found = described(self.coordinators, groups)
        return {group: found[group] for group in sorted(found)}

    def complain(self, sentence: str) -> None:
        """Say what can't be done; the command goes on, and ends with status 1."""
        sys.stdout.flush()
        print(f"holdfast: {sentence}", file=sys.stderr, flush=True)
        self.failed = True

    def missing(self, group: str) -> str:
        """Say that there is no such group, and which one may be meant."""
        return f"--group {group}: there is no such group.{did_you_mean(group, self.all_groups())}"

    def refused(self, group: str, error: AdminError) -> str:
        """Return the sentence on a group that was refused, and on who holds it."""
        if error.code in NOT_THERE:
            return self.missing(group)
        if error.code == ErrorCode.NON_EMPTY_GROUP:
            found = self.described([group])[group]
            if isinstance(found, Description):
                return held(found, "deleted")
        return f"--group {group}: {why(error)}."

    def show(self, text: str, note: str = "") -> None:
        """Print a note to a person, and a table as it is."""
        if note:
            sys.stdout.flush()
            print(note, file=sys.stderr, flush=True)
        sys.stdout.write(text)

    def show_json(self, value: object) -> None:
        print(json.dumps(value, indent=2))

    def end(self) -> None:
        """End the command. typer.Exit: something was refused."""
        if self.failed:
            raise typer.Exit(EXIT_FAILED)


def is_there(answer: Description | AdminError) -> bool:
    """Say whether a group exists: older brokers describe one that doesn't as dead."""
    if isinstance(answer, AdminError):
        return answer.code not in NOT_THERE
    return answer.state != DEAD


def is_idle(answer: Description | AdminError) -> bool:
    """Say whether nobody is in a group, so that it can be changed from outside."""
    if isinstance(answer, AdminError):
        return answer.code in NOT_THERE
    return answer.state in {EMPTY, DEAD}


def held(description: Description, doing: str) -> str:
    """Say that a group has members, who they are, and where they run. Pure."""
    members = description.members
    text = (
        f"--group {description.group}: it is {description.state} and can only be {doing} while "
        "nobody is in it."
    )
    if not members:
        return f"{text} Ask again: its members are just joining or leaving."
    named = "; ".join(
        f"{each.id} (client {each.client_id}) on {each.host.removeprefix('/')}"
        for each in members[:MEMBERS_NAMED]
    )
    more = f"; and {len(members) - MEMBERS_NAMED} more" if len(members) > MEMBERS_NAMED else ""
    return f"{text} Stop its members first: {named}{more}."


def why(error: AdminError) -> str:
    """Return what a refusal means, with its name."""
    known, text = outcome(error.code, error.message)
    sentence = _SENTENCES.get(known) or text or "refused"
    return f"{sentence} ({known.name})"


def error_json(group: str, sentence: str) -> Mapping[str, Any]:
    """Return a refusal for machines."""
    return {"group": group, "error": sentence}
