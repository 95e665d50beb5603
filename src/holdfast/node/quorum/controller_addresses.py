"""Where the quorum's controllers listen, as far as this one knows.

Owns the addresses that answers have named, what a leader has said of itself, and this node's own,
which may be another one than the log has. It asks nobody: `discovery` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.config.key import ConfigError
from holdfast.core.quorum.voter import Quorum
from holdfast.core.quorum.voter_set import Voter
from holdfast.node.quorum.initial_voters import own_voter
from holdfast.node.quorum.quorum_replica import QuorumReplica

ADDRESSES_MAX: Final = 100


class ControllerAddresses:
    """Finds a controller by its node id."""

    def __init__(self, replica: QuorumReplica, state: Quorum) -> None:
        self._replica = replica
        self._state = state
        self._learnt: dict[int, Voter] = {}
        self._said: dict[tuple[int, int], Voter] = {}  # epoch and its leader: what that says
        self._own = _own(replica)

    def learn(self, endpoints: Sequence[Any]) -> None:
        """Remember where an answer says that controllers are: node_id, host and port of each."""
        for each in endpoints:
            if each.node_id in self._learnt or len(self._learnt) < ADDRESSES_MAX:
                self._learnt[each.node_id] = Voter(each.node_id, each.host, each.port)

    def leader_says(self, epoch: int, leader: Voter) -> None:
        """Remember where the leader of an epoch says that it listens: nobody knows that better.

        Where the configuration fixes the voters, it fixes their addresses as well.
        """
        if not self._replica.voter_log.fixed:
            self._said = {(epoch, leader.node_id): leader}

    def find(self, node_id: int) -> Voter | None:
        """Return where a controller listens; None: nobody has said that yet.

        The voters' record counts for less than the controller itself, and for more than others.
        """
        if node_id == self._replica.key.node_id and self._own is not None:
            return self._own
        said = self._said.get((self._state.epoch, node_id))
        return said or self._state.voters.find(node_id) or self._learnt.get(node_id)

    @property
    def moved(self) -> bool:
        """Return whether the voters' record has this node with another address than its own."""
        key, history = self._replica.key, self._replica.voter_log.history
        recorded = self._state.voters.find(key.node_id)
        return (
            self._own is not None
            and recorded is not None
            and recorded.key == key
            and recorded != self._own
            and history.kraft_version > 0
        )


def _own(replica: QuorumReplica) -> Voter | None:
    """Return where this controller listens; None: that is fixed, or its listener won't say it."""
    if replica.voter_log.fixed:
        return None
    try:
        return own_voter(replica.settings, replica.key.directory_id)
    except ConfigError:
        return None
