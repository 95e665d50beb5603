"""The file quorum-state: what a voter must not forget, in Apache Kafka's own text.

Owns its format. When it has to be written, `core.quorum.voter` says; that it survives a power cut
before anything depends on it is for who writes it.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.core.quorum.voter_events import NOBODY, Saved
from holdfast.core.quorum.voter_set import ReplicaKey
from holdfast.runtime.ports import Disk
from holdfast.wire.uuids import NULL_UUID, parse_uuid, uuid_text

FILE_NAME: Final = "quorum-state"
_NUMBER: Final = r'"%s"\s*:\s*(-?\d+)\s*[,}]'


class QuorumStateError(Exception):
    """The file is damaged. The text names it."""


def format_state(saved: Saved) -> bytes:
    """Return the file's content, version 1 (KIP-853)."""
    voted = saved.voted or ReplicaKey(NOBODY)
    return (
        f'{{"leaderId":{saved.leader_id},"leaderEpoch":{saved.epoch},"votedId":{voted.node_id},'
        f'"votedDirectoryId":"{uuid_text(voted.directory_id)}","data_version":1}}'
    ).encode()


def parse_state(data: bytes, path: str) -> Saved:
    """Undo `format_state`; version 0, as older Apache Kafkas write it, is read too.

    QuorumStateError: something is missing. Forgetting a vote could elect two leaders, so there is
    nothing to fall back on.
    """
    # A handful of words that only voters write: importing json costs more start-up time than this.
    text = data.decode("utf-8", "replace").strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise _damaged(path, "it is no JSON object")
    epoch, leader = _number(text, "leaderEpoch", path), _number(text, "leaderId", path)
    voted_id = _number(text, "votedId", path)
    found = re.search(r'"votedDirectoryId"\s*:\s*"([^"]*)"', text)
    directory = NULL_UUID
    if found is not None:
        try:
            directory = parse_uuid(found[1])
        except ValueError as error:
            raise _damaged(path, f"votedDirectoryId is {found[1]!r}") from error
    if epoch < 0:
        raise _damaged(path, f"leaderEpoch is {epoch}")
    return Saved(epoch, leader, ReplicaKey(voted_id, directory) if voted_id != NOBODY else None)


def read_state(disk: Disk, directory: str) -> Saved | None:
    """Read the file in the metadata log's directory; None when there is none."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    return parse_state(disk.read(path), path)


def _number(text: str, name: str, path: str) -> int:
    found = re.search(_NUMBER % name, text)
    if found is None:
        raise _damaged(path, f"it holds no {name}")
    return int(found[1])


def _damaged(path: str, why: str) -> QuorumStateError:
    return QuorumStateError(
        f"{path} is damaged, {why}: restore it, or the metadata log with it, from a copy"
    )
